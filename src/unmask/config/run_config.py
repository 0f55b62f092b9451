"""The configuration of a run: reading, merging, checking and writing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import yaml

from unmask import recipes
from unmask.backbones.backbone import BACKBONES
from unmask.config.values import read_value
from unmask.data.data_config import DataConfig
from unmask.data.tokenizers.tokenizer import TOKENIZERS, TokenizerConfig
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.methods.method import METHODS
from unmask.options import Checked, option
from unmask.registry import Registry
from unmask.training.training_config import DistributedConfig, LoraConfig, TrainingConfig


@dataclass(frozen=True)
class Choice:
    """A component chosen from a registry: its name and its configuration."""

    name: str
    config: Any  # an instance of the component's `config_class`


def config_class(entry: type) -> type:
    """The dataclass that configures a registry entry: its nested `Config`, or the entry itself.

    Args:
        entry: a class of a registry.

    Returns:
        The dataclass.

    Example:
        >>> config_class(SCHEDULES["loglinear"]).__name__
        'LogLinear'
    """
    return getattr(entry, "Config", entry)


_CHOICES: dict[str, tuple[Registry[Any], str]] = {
    "method": (METHODS, "mdlm"),
    "schedule": (SCHEDULES, "loglinear"),
    "time_sampler": (TIME_SAMPLERS, "stratified"),
    "backbone": (BACKBONES, "dit"),
}


def _default(section: str) -> Choice:
    registry, name = _CHOICES[section]
    return Choice(name, config_class(registry[name])())


@dataclass(frozen=True)
class RunConfig(Checked):
    """All settings of a run."""

    seed: int = option(0, ge=0, le=2**63 - 1)
    init_from: str = ""  # a model whose tokenizer and weights the run starts from; "" = none
    teacher: str = ""  # a model whose predictions the run learns beside its text; "" = none
    method: Choice = field(default_factory=partial(_default, "method"))
    schedule: Choice = field(default_factory=partial(_default, "schedule"))
    time_sampler: Choice = field(default_factory=partial(_default, "time_sampler"))
    backbone: Choice = field(default_factory=partial(_default, "backbone"))
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)


# Reading


def load_recipe(recipe: str) -> dict[str, Any]:
    """The settings of a recipe, merged over those of its `base` recipe, if it has one.

    Args:
        recipe: the name of a shipped recipe or the path of a YAML file.

    Returns:
        Nested dicts, not checked yet.

    Example:
        >>> sorted(load_recipe("demo"))
        ['backbone', 'data', 'training']
    """
    return _load(recipes.locate(recipe), ())


def _load(path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    if path in chain:
        raise UnmaskError(f"the recipe {path} is its own base, directly or not: change its 'base'")
    tree: dict[str, Any] = recipes.read(path)
    base = tree.pop("base", None)
    if base is None:
        return tree
    return _merge(_load(recipes.locate(str(base), path.parent), (*chain, path)), tree)


def resolve(
    recipe: Mapping[str, Any],
    overrides: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
) -> RunConfig:
    """The checked configuration of a recipe with overrides.

    Args:
        recipe: a tree of settings, as `load_recipe` reads it; {} has defaults only.
        overrides: settings by dotted name, such as {"training.steps": 100}; values may be text.

    Returns:
        The configuration.

    Example:
        >>> resolve({}, {"training.steps": 100, "method": "sedd"}).training.steps
        100
    """
    update: dict[str, Any] = {}
    for dotted, value in overrides.items() if isinstance(overrides, Mapping) else overrides:
        _set_dotted(update, dotted, value)
    return from_dict(_merge(recipe, update))


def from_dict(tree: Mapping[str, Any]) -> RunConfig:
    """The checked configuration of a tree; missing fields have their defaults.

    Args:
        tree: nested dicts, as `to_dict` returns them.

    Returns:
        The configuration.

    Example:
        >>> from_dict({"seed": 7}).seed
        7
    """
    config: RunConfig = _build(RunConfig, tree, "")
    return config


def _set_dotted(update: dict[str, Any], dotted: str, value: Any) -> None:
    """Sets the value of a dotted name in a tree. If the value is a mapping,
    sets each of its entries.

    `method` alone means `method.name`, and likewise for the other choices.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _set_dotted(update, f"{dotted}.{name}", inner)
        return
    *sections, leaf = [*dotted.split("."), *(["name"] if dotted in _CHOICES else [])]
    for section in sections:
        update = update.setdefault(section, {})
        if not isinstance(update, dict):
            raise UnmaskError(
                f"{dotted}: {section} is given as a value and as a section; give only one of them"
            )
    update[leaf] = value


def _merge(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `update`. A choice of another component drops the old fields."""
    merged = {key: _section(key, value) for key, value in base.items()}
    for key, value in update.items():
        new, old = _section(key, value), merged.get(key, {})
        merged[key] = new if _is_other_component(key, old, new) else _overlay(old, new, key)
    return merged


def _is_other_component(key: str, old: Any, new: Any) -> bool:
    """True if a section chooses another component than before."""
    if key not in _CHOICES or not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return False
    before = old.get("name", _CHOICES[key][1])
    return bool(new.get("name", before) != before)


def _overlay(old: Any, new: Any, at: str) -> Any:
    """`old` with the values of `new`, section by section."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    if at == "data.tokenizer" and "kind" in new:  # drop settings that the new kind lacks
        known = {f.name for f in fields(_tokenizer_config(new, at))}
        old = {name: value for name, value in old.items() if name in known}
    return {
        **old,
        **{key: _overlay(old.get(key), value, _join(at, key)) for key, value in new.items()},
    }


def _section(key: str, value: Any) -> Any:
    """A section as a mapping: `method: sedd` becomes `{name: sedd}`, None becomes `{}`."""
    if value is None:
        return {}
    return {"name": value} if key in _CHOICES and isinstance(value, str) else value


# Building: the type of each field converts its value, which is text or a YAML value


def _build(cls: type, tree: Any, at: str = "") -> Any:
    """An instance of a dataclass from its section of the tree;
    `at` is the section's dotted name.
    """
    own = {f.name: f for f in fields(cls) if f.init}
    if not isinstance(tree, Mapping):
        example = f"; set a field of it, such as {_join(at, next(iter(own)))}" if own else ""
        raise UnmaskError(
            f"{at or 'a configuration'} must be a section, but is the value {tree}{example}"
        )
    for name in tree:
        if name not in own:
            raise _unknown(_first_leaf(tree, name, at), cls, at)
    hints = get_type_hints(cls)
    values = {name: _parse(hints[name], value, _join(at, name)) for name, value in tree.items()}
    try:
        return cls(**values)
    except (UnmaskError, ValueError) as error:
        if f" {at}." in str(error):  # the error names the setting in full
            raise UnmaskError(str(error)) from None
        section = at.rpartition(".")[2]
        reason = str(error).removeprefix(f"{at}.").removeprefix(f"{section}.")
        about_field = reason.partition(" ")[0] in own
        raise UnmaskError(_join(at, reason, "." if about_field else ": ")) from None


def _choose(tree: Any, at: str) -> Choice:
    """The choice of a section, which holds the name and the fields of a component."""
    registry, default = _CHOICES[at]
    section = _section(at, tree)
    if not isinstance(section, Mapping):
        raise UnmaskError(f"{at} must be one of {', '.join(registry)}, but is {tree}")
    name = str(section.get("name", default))
    rest = {key: value for key, value in section.items() if key != "name"}
    return Choice(name, _build(config_class(registry[name]), rest, at))


def _parse(hint: Any, value: Any, at: str) -> Any:
    """The value of a field, converted to the type of the field."""
    if hint is Choice:
        return _choose(value, at)
    if hint is TokenizerConfig:
        return _build(_tokenizer_config(value, at), value, at)
    if is_dataclass(hint):
        return _build(cast(type, hint), value, at)
    if isinstance(value, list | tuple) and (record := _item_class(hint)):
        # a text sets the first field of an item
        return tuple(
            _build(
                record,
                {fields(record)[0].name: item} if isinstance(item, str) else item,
                f"{at}[{i}]",
            )
            for i, item in enumerate(value)
        )
    try:
        return read_value(hint, value)
    except ValueError as error:
        raise UnmaskError(f"{at}: {error}") from None


def _tokenizer_config(tree: Any, at: str) -> type:
    """The dataclass of the tokenizer kind that a section names."""
    kind = tree.get("kind", TokenizerConfig.kind) if isinstance(tree, Mapping) else None
    try:
        return TOKENIZERS[str(kind or TokenizerConfig.kind)].Config
    except UnmaskError as error:
        raise UnmaskError(f"{at}: {error}") from None


def _item_class(hint: Any) -> type | None:
    """The dataclass of the items of a tuple type, such as `tuple[Portion, ...]`;
    None for others.
    """
    lists = (get_args(member) for member in get_args(hint) if get_origin(member) is tuple)
    return next((cast(type, inner[0]) for inner in lists if is_dataclass(inner[0])), None)


def _join(at: str, name: str, by: str = ".") -> str:
    return f"{at}{by}{name}" if at else name


def _first_leaf(tree: Mapping[str, Any], name: str, at: str) -> str:
    """The dotted name of the first setting in an entry of a section."""
    inner, dotted = tree[name], _join(at, name)
    return (
        _first_leaf(inner, next(iter(inner)), dotted)
        if isinstance(inner, Mapping) and inner
        else dotted
    )


def _names(cls: type, at: str = "") -> Iterator[str]:
    """The dotted name of every field."""
    hints = get_type_hints(cls)
    for f in fields(cls):
        name = _join(at, f.name)
        if hints[f.name] is Choice:
            yield name
            yield from _names(type(_default(name).config), name)
        elif is_dataclass(hints[f.name]):
            yield from _names(hints[f.name], name)
        else:
            yield name


def _unknown(dotted: str, cls: type, at: str) -> UnmaskError:
    """The error for an unknown setting, with the most similar known name."""
    elsewhere = [name for name in _names(RunConfig) if not at or not name.startswith(f"{at}.")]
    known = [*(_names(cls, at) if at else ()), *elsewhere]
    leaf = dotted.rpartition(".")[2]
    same = [name for name in known if name.rpartition(".")[2] == leaf]
    similar = get_close_matches(dotted[:100], same or known, n=1, cutoff=0.0 if same else 0.5)
    hint = (
        f"did you mean {similar[0]!r}?" if similar else "'unmask config RECIPE' prints all settings"
    )
    return UnmaskError(f"unknown setting {dotted!r}; {hint}")


# Writing


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as nested plain values, defaults included.

    Args:
        config: a run configuration, a choice or a component's dataclass.

    Returns:
        Nested dicts, which `from_dict` reads back.

    Example:
        >>> to_dict(RunConfig())["schedule"]
        {'name': 'loglinear', 'eps': 0.001}
    """
    if isinstance(config, Choice):
        return {"name": config.name, **to_dict(config.config)}
    return {f.name: _plain(getattr(config, f.name)) for f in fields(config) if f.init}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_dict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def dump_yaml(config: RunConfig) -> str:
    """A configuration as YAML. Reading it returns an equal configuration.

    Args:
        config: the run configuration.

    Returns:
        The text of a config.yaml.

    Example:
        >>> dump_yaml(RunConfig(seed=7)).splitlines()[0]
        'seed: 7'
    """
    # allow_unicode stays off: PyYAML would lose line separators in text.
    return yaml.safe_dump(to_dict(config), sort_keys=False)


def defaults(config: Any) -> dict[str, Any]:
    """The default values of all fields, including those of the chosen components."""
    if isinstance(config, Choice):
        return defaults(config.config)
    found: dict[str, Any] = {}
    for part in fields(config):
        value = getattr(config, part.name)
        if is_dataclass(value):
            found[part.name] = defaults(value)
        elif part.default is not MISSING:
            found[part.name] = _plain(part.default)
    return found


def flatten(config: RunConfig) -> dict[str, Any]:
    """All fields of a configuration by dotted name.

    Args:
        config: the run configuration.

    Returns:
        Plain values by name.

    Example:
        >>> flatten(RunConfig())["training.batch"]
        32
    """
    return dict(_leaves(to_dict(config), ""))


def _leaves(tree: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a tree with their dotted names."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, _join(at, name))
        else:
            yield _join(at, name), value
