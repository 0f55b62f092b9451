"""Removes the paths of this machine from configurations and texts before they are published."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unmask.config.run_config import RunConfig
from unmask.data.data_config import DataConfig, Portion
from unmask.data.sources.corpus import ELSEWHERE
from unmask.data.sources.open_source import scheme_of
from unmask.files.hub import hub_name

_MODELS = ("init_from", "teacher")
_BEDS = ("intervals", "exclude", "holdout_intervals")
_UNNAMED = "data"  # published name of a path without a name, such as .


def published(config: RunConfig) -> RunConfig:
    """The configuration with names of files and folders in place of their paths."""
    tokenizer = replace(config.data.tokenizer, path=_model(config.data.tokenizer.path))
    beds: dict[str, Any] = {name: _name(getattr(config.data, name)) for name in _BEDS}
    data = _with_sources(replace(config.data, tokenizer=tokenizer, cache="", **beds), _source)
    models: dict[str, Any] = {name: _model(getattr(config, name)) for name in _MODELS}
    return replace(config, data=data, **models)


def portable(config: RunConfig) -> RunConfig:
    """The published configuration for another machine: local sources become `elsewhere:NAME`.

    A file of the same name on the other machine is thus not mistaken for the training text.
    """
    public = published(config)
    return replace(public, data=_with_sources(public.data, _elsewhere))


def _with_sources(data: DataConfig, rename: Callable[[str], str]) -> DataConfig:
    """The data configuration with every source renamed."""
    train: str | tuple[Portion, ...]
    if isinstance(data.train, str):
        train = rename(data.train)
    else:
        train = tuple(replace(portion, text=rename(portion.text)) for portion in data.train)
    tokenizer = replace(data.tokenizer, source=rename(data.tokenizer.source))
    return replace(data, train=train, valid=rename(data.valid), tokenizer=tokenizer)


def without_paths(text: str, config: RunConfig) -> str:
    """A text about a run with every path of the configuration replaced by its published name."""
    data, public = config.data, published(config)
    found = {portion.text: _source(portion.text) for portion in data.portions}
    found |= {
        data.valid: public.data.valid,
        data.cache: _name(data.cache),
        data.tokenizer.path: public.data.tokenizer.path,
        data.tokenizer.source: public.data.tokenizer.source,
        **{getattr(config, name): getattr(public, name) for name in _MODELS},
        **{getattr(data, name): getattr(public.data, name) for name in _BEDS},
    }
    for path in sorted(found, key=len, reverse=True):  # a file before its folder
        if re.search(r"\w", path) and found[path] != path.rstrip("\\/"):  # a path, not a bare name
            pattern = rf"(?<![\w./~-])(?:file://)?{re.escape(path)}(?![\w-])"
            text = re.sub(pattern, found[path].replace("\\", r"\\"), text)
    return text


def _source(text: str) -> str:
    """The published name of a source: unchanged if it means the same anywhere,
    else its last part.
    """
    return text if _anywhere(text) else _name(text.removeprefix(ELSEWHERE))


def _elsewhere(name: str) -> str:
    """The source `elsewhere:NAME` of a local file or folder."""
    return name if not name or _anywhere(name) else ELSEWHERE + name


def _anywhere(text: str) -> bool:
    """True if a source names the same text on every machine."""
    found = scheme_of(text)
    return found is not None and found.anywhere


def _model(text: str) -> str:
    """The published name of a model or tokenizer: its hub name, or the last part of its path."""
    return text if hub_name(text) else _name(text)


def _name(path: str) -> str:
    """The last part of a POSIX or Windows path."""
    last = re.split(r"[\\/]", path.rstrip("\\/"))[-1]
    return last if last.strip("~.") or not path else _UNNAMED
