"""A bundle from a folder or checkpoint in any format, or from a name."""

from dataclasses import replace
from pathlib import Path

from unmask import shipped
from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.files.hub import at_revision, hub_name
from unmask.formats.foreign import _PICKLED, _json
from unmask.formats.foreign_format import OF_TOKENIZERS, ForeignFormat, snapshot
from unmask.formats.format import FORMATS, format_of

_OF_MODELS = ["config.json", "generation_config.json", "model*.safetensors", "model*.index.json"]
_NEEDED = [*_OF_MODELS, *OF_TOKENIZERS]


def read_bundle(path: str | Path) -> Bundle:
    """The model in a folder of any format, shipped, or on the hub, by name."""
    if hub_name(path) is not None:
        return fetch(str(path))
    return _read(shipped.locate(path))


def read(source: str | Path, tokenizer: str | None = None, averaged: bool = True) -> Bundle:
    """A model to convert: a Lightning checkpoint, a folder of any format, or a name on the hub.

    Args:
        source: the file, folder or name.
        tokenizer: a folder or a hub name, in place of the one beside the weights.
        averaged: take the averaged weights of a Lightning checkpoint, not the last ones.
    """
    if isinstance(source, str) and hub_name(source) is not None:
        return fetch(source, tokenizer)
    path = Path(source)
    if not path.exists():
        raise UnmaskError(f"no checkpoint {str(source)!r}: give a file, a folder or owner/name")
    return _read(path, tokenizer, averaged)


def fetch(name: str, tokenizer: str | None = None) -> Bundle:
    """A model of the hub, from the local cache where it is there; its tokenizer is called as it is."""
    folder = download(name)
    bundle = _read(folder, tokenizer)
    data = bundle.config.data
    if data.tokenizer.path == str(folder):  # which means nothing to others
        known, _ = at_revision(hub_name(name) or name)
        data = replace(data, tokenizer=replace(data.tokenizer, path=known))
        return replace(bundle, config=replace(bundle.config, data=data))
    return bundle


def download(name: str) -> Path:
    """The files of a model that are data; no code is fetched."""
    folder = snapshot(name, _NEEDED)
    return folder if any(folder.glob("*.safetensors")) else snapshot(name, [*_NEEDED, _PICKLED])


def _read(path: Path, tokenizer: str | None = None, averaged: bool = True) -> Bundle:
    """The model at a path, by the format that matches."""
    found = format_of(path)
    if found is None:
        if (path / "config.json").exists():
            kind, known = _json(path / "config.json").get("model_type"), ", ".join(FORMATS)
            raise UnmaskError(
                f"{path} holds a model of type {kind!r}; those that are read: {known}"
            )
        raise UnmaskError(f"{str(path)!r} holds no model: neither model.json nor config.yaml")
    if issubclass(found, ForeignFormat):
        return found.read(path, tokenizer, averaged)
    if tokenizer is not None:
        raise UnmaskError(
            f"{path} is a model of ours with its own tokenizer: leave --tokenizer out"
        )
    return found.read(path)
