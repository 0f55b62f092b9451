"""The base class of foreign formats: builds a bundle from a checkpoint and a tokenizer."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from unmask.bundle import Bundle
from unmask.config.run_config import from_dict
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.no_tokenizer import NoTokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files.hub import at_revision, hub_name
from unmask.files.untrusted import refusing
from unmask.formats.foreign import (
    ForeignCheckpoint,
    Into,
    hub_config,
    read_tensors,
    shapes_of,
    with_rows,
)
from unmask.formats.format import ReadFormat
from unmask.formats.weights import restored
from unmask.imports import extra
from unmask.runtime.host_memory import check_memory
from unmask.vocabulary import Vocabulary

TOKENIZER_FILES = ["tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "alphabet.json"]
_VOCABULARY_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "vocabulary.json")
_TABLES = ("embedding.weight", "head.weight", "head.bias")
# tokenizer of a checkpoint without one, by the number of rows of its embedding
_DEFAULT_TOKENIZERS = {
    50257: "openai-community/gpt2",
    50258: "openai-community/gpt2",
    30522: "google-bert/bert-base-uncased",
}


class ForeignFormat(ReadFormat):
    """A folder in the hub's layout: config.json, weights, and optionally a tokenizer."""

    model_types: ClassVar[tuple[str, ...]] = ()  # of config.json
    placed: ClassVar[bool] = False  # True: `parts` takes a precision and a device for the weights

    @staticmethod
    @abstractmethod
    def parts(
        tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
    ) -> ForeignCheckpoint:
        """The sections of a configuration, and the weights under the names used here.

        Args:
            tree: the content of config.json.
            tensors: the weights by their names in the file.
            where: the origin, for error messages.

        Returns:
            The parts of the model.
        """

    @classmethod
    def fits(cls, settings: Mapping[str, Any]) -> bool:
        """True if the settings of config.json are of this format."""
        return settings.get("model_type") in cls.model_types

    @classmethod
    def matches(cls, path: Path) -> bool:
        """True if there is a config.json of this format."""
        settings = hub_config(path)
        return settings is not None and cls.fits(settings)

    @classmethod
    def read(
        cls,
        path: Path,
        tokenizer: str | None = None,
        averaged: bool = True,
        into: Into | None = None,
    ) -> Bundle:
        """The model as a bundle.

        Args:
            path: the folder.
            tokenizer: a folder or a hub name, in place of the folder's own tokenizer.
            averaged: use the EMA weights if the checkpoint also has the weights of its last step.
            into: precision and device of the weights, for formats that take them.

        Returns:
            The bundle.
        """
        placed: dict[str, Any] = {"into": into} if cls.placed and into is not None else {}
        with refusing(f"{path} cannot be read"):
            tree, tensors = hub_config(path) or {}, read_tensors(path)
            check_room(tensors, placed.get("into"), str(path))
            parts = cls.parts(tree, tensors, str(path), **placed)
        return build_bundle(parts, find_tokenizer(path, parts, tokenizer), str(path))

    @classmethod
    def outline(cls, path: Path) -> tuple[ForeignCheckpoint, Tokenizer]:
        """The parts of the model with weights on the meta device, and its tokenizer.

        Args:
            path: the folder.

        Returns:
            The parts without data, and the tokenizer with the model's vocabulary.
        """
        with refusing(f"{path} cannot be read"):
            shapes = shapes_of(read_tensors(path))
            parts = cls.parts(hub_config(path) or {}, shapes, str(path))
        return parts, fitted_tokenizer(parts, find_tokenizer(path, parts), str(path))


def check_room(tensors: Mapping[str, Tensor], into: Into | None, where: str) -> None:
    """Raises an error if weights do not fit into the memory of the machine.

    Args:
        tensors: the weights.
        into: their precision and device; fp32 on the CPU by default.
        where: the origin, for error messages.
    """
    into = into or Into()
    if into.device is None or into.device.type == "cpu":
        count = sum(tensor.numel() for tensor in shapes_of(tensors).values())
        check_memory(into.dtype.itemsize * count, where)


def find_tokenizer(folder: Path, parts: ForeignCheckpoint, given: str | None = None) -> Tokenizer:
    """The `given` tokenizer, the folder's own, or the default for the size of the vocabulary.

    Without any of them it is a placeholder, which raises an error when text is encoded.
    """
    if given is not None:
        return load_tokenizer(given if Path(given).is_dir() else _hub_tokenizer(given))
    if any((folder / name).is_file() for name in _VOCABULARY_FILES):
        return load_tokenizer(folder)
    try:
        return load_tokenizer(_hub_tokenizer(_DEFAULT_TOKENIZERS[parts.size]))
    except (KeyError, UnmaskError):  # no default for this size, or it cannot be downloaded
        if not parts.exact and parts.sections["method"]["name"] == "mdlm":
            raise UnmaskError(
                f"{folder} has no tokenizer, so the id of [MASK] is unknown: put its tokenizer files "
                "there, or name a tokenizer with 'unmask convert --tokenizer'"
            ) from None
        mask_id = parts.size - 1 if parts.exact else parts.size  # a new id after the tokens
        return NoTokenizer(Vocabulary(mask_id + 1, mask_id))


def build_bundle(parts: ForeignCheckpoint, tokenizer: Tokenizer, where: str) -> Bundle:
    """Builds a bundle. The embedding and the head get rows for ids that the checkpoint lacks."""
    tokenizer = fitted_tokenizer(parts, tokenizer, where)
    vocabulary = tokenizer.vocabulary
    weights = dict(parts.weights)
    for name in _TABLES:
        if not parts.exact and name in weights and len(weights[name]) == parts.size:
            weights[name] = with_rows(weights[name], vocabulary.size)
    data = {"length": parts.length, "tokenizer": {"kind": "hf", "path": where}}
    config = from_dict({**parts.sections, "data": data})
    named = {f"backbone.{name}": tensor for name, tensor in weights.items()}
    dtype = next(iter(weights.values())).dtype
    method = restored(config, vocabulary, named, Path(where), dtype, taken=parts.taken)
    return Bundle(method, tokenizer, config, parts.defaults)


def fitted_tokenizer(parts: ForeignCheckpoint, tokenizer: Tokenizer, where: str) -> Tokenizer:
    """The tokenizer with the ids of a checkpoint, which may have more than the tokenizer.

    Args:
        parts: the checkpoint.
        tokenizer: its tokenizer.
        where: the origin, for error messages.

    Returns:
        The tokenizer; an error if it belongs to another model.
    """
    vocabulary = tokenizer.vocabulary
    if parts.mask_id is not None:
        vocabulary = _with_mask(tokenizer, parts, where)
    elif vocabulary.size < parts.size and not parts.exact:  # padding of the embedding
        vocabulary = vocabulary.extended(parts.size)
    if vocabulary.size != parts.size and parts.exact:
        raise UnmaskError(
            f"{where} has {parts.size:,} ids, MASK included, and the tokenizer {vocabulary.size:,}: "
            "the tokenizer belongs to another model, give its own"
        )
    return tokenizer.having(vocabulary, tokenizer.labels)


def _with_mask(tokenizer: Tokenizer, parts: ForeignCheckpoint, where: str) -> Vocabulary:
    """The vocabulary with the mask id of the format, and without one that the tokenizer lacks."""
    v, backend = tokenizer.vocabulary, tokenizer.backend()
    new = backend is not None and backend.id_to_token(v.mask_id) is None
    size = v.size - (new and v.mask_id == v.size - 1)
    assert parts.mask_id is not None
    if size > parts.size or parts.mask_id >= parts.size:
        raise UnmaskError(
            f"{where} has {parts.size:,} ids, with MASK {parts.mask_id:,}, and the tokenizer {size:,}: "
            "the tokenizer belongs to another model, give its own"
        )
    return replace(v, size=parts.size, mask_id=parts.mask_id)


def snapshot(name: str, patterns: list[str]) -> Path:
    """Downloads the files of a hub model that match,
    and returns their folder in the local cache.
    """
    found, revision = at_revision(hub_name(name) or name)
    hub = extra("huggingface_hub", f"the model {found!r} (no such folder here)", "hub")
    try:
        return Path(hub.snapshot_download(found, revision=revision, allow_patterns=patterns))
    except Exception as error:  # of the library, its HTTP client or the system
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnmaskError(
            f"no local folder {found!r}, and the hub does not provide it: {reason}"
        ) from None


def _hub_tokenizer(name: str) -> Path:
    return snapshot(name, TOKENIZER_FILES)
