"""unmask recipes, methods, …: names with one line each."""

from argparse import Namespace
from functools import partial
from importlib import import_module

from unmask import recipes
from unmask.cli.parser import Commands
from unmask.registry import Registry

_REGISTRIES = {
    "methods": ("unmask.methods.method", "METHODS"),
    "samplers": ("unmask.samplers.sampler", "SAMPLERS"),
    "grids": ("unmask.samplers.core.time_grid", "GRIDS"),
    "schedules": ("unmask.diffusion.schedule", "SCHEDULES"),
    "times": ("unmask.diffusion.time_sampler", "TIME_SAMPLERS"),
    "backbones": ("unmask.backbones.backbone", "BACKBONES"),
    "loggers": ("unmask.training.logs.loggers", "LOGGERS"),
}


def add(commands: Commands) -> None:
    for name in ("recipes", *_REGISTRIES):
        summary = f"list the {'time samplers' if name == 'times' else name}"
        parser = commands.add_parser(name, help=summary, description=summary)
        parser.set_defaults(execute=partial(execute, name))


def execute(name: str, args: Namespace) -> None:
    summaries = recipes.summaries() if name == "recipes" else _registry(name).summaries()
    width = max(map(len, summaries))
    for entry, summary in summaries.items():
        print(f"{entry:<{width}}  {summary}")


def _registry(name: str) -> Registry[object]:
    module, attribute = _REGISTRIES[name]
    return getattr(import_module(module), attribute)
