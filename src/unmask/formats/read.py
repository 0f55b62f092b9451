"""Reads a bundle from a folder, a checkpoint or a hub name, in any format."""

from dataclasses import replace
from pathlib import Path

from unmask import shipped
from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.files.hub import at_revision, hub_name
from unmask.formats.foreign import PICKLED, Into, json_object
from unmask.formats.foreign_format import TOKENIZER_FILES, ForeignFormat, snapshot
from unmask.formats.format import FORMATS, Format, format_of

_MODEL_FILES = ["config.json", "generation_config.json", "model*.safetensors", "model*.index.json"]
_DATA_FILES = [*_MODEL_FILES, *TOKENIZER_FILES]


def read_bundle(path: str | Path, into: Into | None = None) -> Bundle:
    """Reads a model in any format from a path, a shipped model or the hub.

    Args:
        path: the folder or file, the name of a shipped model, or owner/name on the hub.
        into: precision and device of the weights. Formats that do not take them read fp32.

    Returns:
        The bundle.
    """
    if hub_name(path) is not None:
        return fetch(str(path), into=into)
    return _read(shipped.locate(path), into=into)


def read(source: str | Path, tokenizer: str | None = None, averaged: bool = True) -> Bundle:
    """Reads a model to convert: a Lightning checkpoint, a folder, or a hub name.

    Args:
        source: the file, folder or name.
        tokenizer: a folder or a hub name, in place of the tokenizer beside the weights.
        averaged: use the EMA weights of a Lightning checkpoint, not the weights of its last step.

    Returns:
        The bundle.
    """
    if isinstance(source, str) and hub_name(source) is not None:
        return fetch(source, tokenizer)
    path = Path(source)
    if not path.exists():
        raise UnmaskError(f"no checkpoint {str(source)!r}: give a file, a folder or owner/name")
    return _read(path, tokenizer, averaged)


def fetch(name: str, tokenizer: str | None = None, into: Into | None = None) -> Bundle:
    """The bundle of a hub model, from the local cache if possible.

    The configuration holds the hub name of the tokenizer, not the cache folder.
    """
    folder = download(name)
    bundle = _read(folder, tokenizer, into=into)
    data = bundle.config.data
    if data.tokenizer.path == str(folder):  # a path that exists on this machine only
        public_name, _ = at_revision(hub_name(name) or name)
        data = replace(data, tokenizer=replace(data.tokenizer, path=public_name))
        return replace(bundle, config=replace(bundle.config, data=data))
    return bundle


def download(name: str) -> Path:
    """Downloads the data files of a hub model and returns their folder. Code is not downloaded."""
    folder = snapshot(name, _DATA_FILES)
    return folder if any(folder.glob("*.safetensors")) else snapshot(name, [*_DATA_FILES, PICKLED])


def _types(kind: type[Format]) -> tuple[str, ...]:
    """The model types of a format of the hub's layout."""
    return kind.model_types if issubclass(kind, ForeignFormat) else ()


def _read(
    path: Path, tokenizer: str | None = None, averaged: bool = True, into: Into | None = None
) -> Bundle:
    """The bundle at a path, read by the format that matches."""
    found = format_of(path)
    if found is None:
        if (path / "config.json").exists():
            kind = json_object(path / "config.json").get("model_type")
            known = {name for each in FORMATS.in_order() for name in _types(each)}
            raise UnmaskError(
                f"{path} holds a model of type {kind!r}, which cannot be read; "
                f"known types: {', '.join(sorted(known))}"
            )
        raise UnmaskError(f"{str(path)!r} holds no model: it has no model.json and no config.yaml")
    if issubclass(found, ForeignFormat):
        placed = {} if into is None or not found.placed else {"into": into}
        return found.read(path, tokenizer, averaged, **placed)
    if tokenizer is not None:
        raise UnmaskError(
            f"{path} is an unmask model with its own tokenizer: leave --tokenizer out"
        )
    return found.read(path)
