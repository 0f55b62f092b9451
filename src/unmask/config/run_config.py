"""A run's whole configuration: the components' own dataclasses, read strictly from YAML and the command line."""

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
from unmask.registry import Registry
from unmask.training.training_config import DistributedConfig, TrainingConfig


@dataclass(frozen=True)
class Choice:
    """A registered component by name, with its own configuration."""

    name: str
    config: Any  # the frozen dataclass that the named class declares


def config_class(entry: type) -> type:
    """The dataclass that configures a registry entry: its nested `Config`, or the entry itself."""
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
class RunConfig:
    """Everything that decides what a run computes."""

    seed: int = 0
    init_from: str = ""  # a model to go on from: its tokenizer and weights; "": start anew
    method: Choice = field(default_factory=partial(_default, "method"))
    schedule: Choice = field(default_factory=partial(_default, "schedule"))
    time_sampler: Choice = field(default_factory=partial(_default, "time_sampler"))
    backbone: Choice = field(default_factory=partial(_default, "backbone"))
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)


# Reading


def load_recipe(recipe: str) -> dict[str, Any]:
    """The tree of a shipped recipe or a YAML file, laid over the recipe that it names as its `base`."""
    return _load(recipes.locate(recipe), ())


def _load(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    if path in above:
        raise UnmaskError(f"the recipe {path} is, through 'base', its own base")
    tree: dict[str, Any] = recipes.read(path)
    base = tree.pop("base", None)
    if base is None:
        return tree
    return _merge(_load(recipes.locate(str(base), path.parent), (*above, path)), tree)


def resolve(recipe: Mapping[str, Any], overrides: Sequence[tuple[str, str]] = ()) -> RunConfig:
    """A recipe with dotted overrides, `("training.steps", "100")`, as a checked configuration."""
    update: dict[str, Any] = {}
    for dotted, text in overrides:
        _plant(update, dotted, text)
    return from_dict(_merge(recipe, update))


def from_dict(tree: Mapping[str, Any]) -> RunConfig:
    """The configuration that a tree describes; what it leaves out keeps its default."""
    return _build(RunConfig, tree, "")


def _plant(update: dict[str, Any], dotted: str, text: str) -> None:
    """Set one dotted name in a tree; a choice's bare name is its `name` field."""
    *sections, leaf = [*dotted.split("."), *(["name"] if dotted in _CHOICES else [])]
    for section in sections:
        update = update.setdefault(section, {})
        if not isinstance(update, dict):
            raise UnmaskError(f"{dotted}: {section} is given as a value and as a section")
    update[leaf] = text


def _merge(base: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `update` over `base`; a choice that changes its name drops every field meant for the old one."""
    merged = {key: _section(key, value) for key, value in base.items()}
    for key, value in update.items():
        new, old = _section(key, value), merged.get(key, {})
        merged[key] = new if _renames(key, old, new) else _overlay(old, new, key)
    return merged


def _renames(key: str, old: Any, new: Any) -> bool:
    if key not in _CHOICES or not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return False
    before = old.get("name", _CHOICES[key][1])
    return new.get("name", before) != before


def _overlay(old: Any, new: Any, at: str) -> Any:
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    if at == "data.tokenizer" and "kind" in new:  # the old kind's own settings go with it
        known = {f.name for f in fields(_tokenizer_config(new, at))}
        old = {name: value for name, value in old.items() if name in known}
    return {
        **old,
        **{key: _overlay(old.get(key), value, _join(at, key)) for key, value in new.items()},
    }


def _section(key: str, value: Any) -> Any:
    """`method: sedd` is short for `method: {name: sedd}`, and an empty section changes nothing."""
    if value is None:
        return {}
    return {"name": value} if key in _CHOICES and isinstance(value, str) else value


# Building: a tree, its leaves text or plain values, read by the types of the dataclasses


def _build(cls: type, tree: Any, at: str = "") -> Any:
    """An instance of a dataclass from its section of the tree; `at` is the section's dotted name."""
    own = {f.name: f for f in fields(cls) if f.init}
    if not isinstance(tree, Mapping):
        example = f"; set a field of it, such as {_join(at, next(iter(own)))}" if own else ""
        raise UnmaskError(f"{at or 'a configuration'} is a section, not a value ({tree}){example}")
    for name in tree:
        if name not in own:
            raise _unknown(_join(at, name), cls, at)
    hints = get_type_hints(cls)
    values = {name: _parse(hints[name], value, _join(at, name)) for name, value in tree.items()}
    try:
        return cls(**values)
    except (UnmaskError, ValueError) as error:
        section = at.rpartition(".")[2]
        reason = str(error).removeprefix(f"{at}.").removeprefix(f"{section}.")
        about_field = reason.partition(" ")[0] in own
        raise UnmaskError(_join(at, reason, "." if about_field else ": ")) from None


def _choose(tree: Any, at: str) -> Choice:
    """The named component's dataclass, from the fields beside its name."""
    registry, default = _CHOICES[at]
    section = _section(at, tree)
    if not isinstance(section, Mapping):
        raise UnmaskError(f"{at} should be one of {', '.join(registry)}, not {tree}")
    name = str(section.get("name", default))
    rest = {key: value for key, value in section.items() if key != "name"}
    return Choice(name, _build(config_class(registry[name]), rest, at))


def _parse(hint: Any, value: Any, at: str) -> Any:
    """A value of the type that the field declares."""
    if hint is Choice:
        return _choose(value, at)
    if hint is TokenizerConfig:
        return _build(_tokenizer_config(value, at), value, at)
    if is_dataclass(hint):
        return _build(cast(type, hint), value, at)
    if isinstance(value, list | tuple) and (record := _record(hint)):
        return tuple(
            _build(record, {fields(record)[0].name: item} if isinstance(item, str) else item, place)
            for item, place in ((item, f"{at}[{i}]") for i, item in enumerate(value))
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


def _record(hint: Any) -> type | None:
    """The dataclass of which a field may hold a list; an item's bare text is its first field."""
    lists = (get_args(member) for member in get_args(hint) if get_origin(member) is tuple)
    return next((cast(type, inner[0]) for inner in lists if is_dataclass(inner[0])), None)


def _join(at: str, name: str, by: str = ".") -> str:
    return f"{at}{by}{name}" if at else name


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
    """An error for a name that no dataclass has, with the nearest that one has."""
    elsewhere = [name for name in _names(RunConfig) if not at or not name.startswith(f"{at}.")]
    known = [*(_names(cls, at) if at else ()), *elsewhere]
    leaf = dotted.rpartition(".")[2]
    same = [name for name in known if name.rpartition(".")[2] == leaf]
    near = same or get_close_matches(dotted[:100], known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "'unmask config RECIPE' prints them all"
    return UnmaskError(f"unknown setting {dotted!r}; {hint}")


# Writing


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration as plain nested values, complete: every default is spelled out."""
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
    """The configuration as YAML that reads back to an equal one."""
    # PyYAML escapes what is not ASCII; with allow_unicode it would lose a line separator in a text
    return yaml.safe_dump(to_dict(config), sort_keys=False)


def defaults(config: Any) -> dict[str, Any]:
    """The defaults of a configuration's fields, those of its chosen components included."""
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
    """Every field by its dotted name."""
    return dict(_leaves(to_dict(config), ""))


def _leaves(tree: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, _join(at, name))
        else:
            yield _join(at, name), value
