"""Run configurations: dataclasses of the components, read from YAML and the command line."""

from unmask.config.run_config import (
    Choice,
    RunConfig,
    config_class,
    dump_yaml,
    flatten,
    from_dict,
    load_recipe,
    resolve,
    to_dict,
)

__all__ = [
    "Choice",
    "RunConfig",
    "config_class",
    "dump_yaml",
    "flatten",
    "from_dict",
    "load_recipe",
    "resolve",
    "to_dict",
]
