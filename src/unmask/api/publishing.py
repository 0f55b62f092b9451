"""What of a configuration others may read: the names of files, not where they lie on a machine."""

import re
from dataclasses import replace

from unmask.api.hub_names import hub_name
from unmask.config import RunConfig
from unmask.data import Portion

_ELSEWHERE = ("builtin:", "hf:")  # sources that are no files
_UNNAMED = "data"  # a path without a name, such as the folder where one stands


def published(config: RunConfig) -> RunConfig:
    """The configuration without the paths of the machine that it was used on."""
    data = config.data
    train: str | tuple[Portion, ...]
    if isinstance(data.train, str):
        train = _source(data.train)
    else:
        train = tuple(replace(portion, text=_source(portion.text)) for portion in data.train)
    tokenizer = data.tokenizer
    tokenizer = replace(tokenizer, path=_model(tokenizer.path), source=_source(tokenizer.source))
    data = replace(data, train=train, valid=_source(data.valid), tokenizer=tokenizer, cache="")
    return replace(config, initial=_model(config.initial), data=data)


def nameless(text: str, config: RunConfig) -> str:
    """A text about a run in which files have their names alone, as in the published configuration."""
    data, told = config.data, published(config)
    found = {portion.text: _source(portion.text) for portion in data.portions}
    found |= {
        data.valid: told.data.valid,
        data.cache: _name(data.cache),
        data.tokenizer.path: told.data.tokenizer.path,
        data.tokenizer.source: told.data.tokenizer.source,
        config.initial: told.initial,
    }
    for path in sorted(found, key=len, reverse=True):  # a folder after the files in it
        if path != found[path]:
            text = text.replace(path, found[path])
    return text


def _source(text: str) -> str:
    """A source of text: a file or folder by its name."""
    return text if text.startswith(_ELSEWHERE) else _name(text)


def _model(text: str) -> str:
    """A model or tokenizer: a folder by its name, one of the hub as it is called there."""
    return text if hub_name(text) else _name(text)


def _name(path: str) -> str:
    """The last part of a path of this or of another system."""
    last = re.split(r"[\\/]", path.rstrip("\\/"))[-1]
    return last if last.strip("~.") or not path else _UNNAMED
