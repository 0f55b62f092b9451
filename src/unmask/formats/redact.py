"""What of a configuration others may read: the names of files, not where they lie on a machine."""

import re
from collections.abc import Callable
from dataclasses import replace

from unmask.config.run_config import RunConfig
from unmask.data.data_config import DataConfig, Portion
from unmask.data.sources.corpus import ELSEWHERE
from unmask.data.sources.open_source import scheme_of
from unmask.files.hub import hub_name

_UNNAMED = "data"  # a path without a name, such as the folder where one stands


def published(config: RunConfig) -> RunConfig:
    """The configuration without the paths of the machine that it was used on, for people to read."""
    tokenizer = replace(config.data.tokenizer, path=_model(config.data.tokenizer.path))
    data = _with_sources(replace(config.data, tokenizer=tokenizer, cache=""), _source)
    return replace(config, init_from=_model(config.init_from), data=data)


def travelling(config: RunConfig) -> RunConfig:
    """As published, for a model that leaves the machine: a file that is called the same is another."""
    told = published(config)
    return replace(told, data=_with_sources(told.data, _elsewhere))


def _with_sources(data: DataConfig, told: Callable[[str], str]) -> DataConfig:
    """The configuration of data with all that text is read from told in another way."""
    train: str | tuple[Portion, ...]
    if isinstance(data.train, str):
        train = told(data.train)
    else:
        train = tuple(replace(portion, text=told(portion.text)) for portion in data.train)
    tokenizer = replace(data.tokenizer, source=told(data.tokenizer.source))
    return replace(data, train=train, valid=told(data.valid), tokenizer=tokenizer)


def nameless(text: str, config: RunConfig) -> str:
    """A text about a run in which files have their names alone, as in the published configuration."""
    data, told = config.data, published(config)
    found = {portion.text: _source(portion.text) for portion in data.portions}
    found |= {
        data.valid: told.data.valid,
        data.cache: _name(data.cache),
        data.tokenizer.path: told.data.tokenizer.path,
        data.tokenizer.source: told.data.tokenizer.source,
        config.init_from: told.init_from,
    }
    for path in sorted(found, key=len, reverse=True):  # a folder after the files in it
        if re.search(r"\w", path) and found[path] != path.rstrip("\\/"):  # it says where
            whole = rf"(?<![\w./~-])(?:file://)?{re.escape(path)}(?![\w-])"
            text = re.sub(whole, found[path].replace("\\", r"\\"), text)
    return text


def _source(text: str) -> str:
    """A source of text: a file or folder by its name."""
    return text if _anywhere(text) else _name(text.removeprefix(ELSEWHERE))


def _elsewhere(name: str) -> str:
    """A file or folder by a name that nothing here has."""
    return name if not name or _anywhere(name) else ELSEWHERE + name


def _anywhere(text: str) -> bool:
    """True for a source that names the same text on every machine."""
    found = scheme_of(text)
    return found is not None and found.anywhere


def _model(text: str) -> str:
    """A model or tokenizer: a folder by its name, one of the hub as it is called there."""
    return text if hub_name(text) else _name(text)


def _name(path: str) -> str:
    """The last part of a path of this or of another system."""
    last = re.split(r"[\\/]", path.rstrip("\\/"))[-1]
    return last if last.strip("~.") or not path else _UNNAMED
