"""From a folder, a name on the hub or a Lightning checkpoint to a model: our code, nobody else's."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from unmask.api.build import restored
from unmask.api.model import Model
from unmask.config.run import from_dict
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.no_tokenizer import AbsentTokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files.hub import at_revision, hub_name
from unmask.files.untrusted import foreign_text, refusing
from unmask.hub import own
from unmask.hub.authors import read_lightning, read_mdlm, read_sedd
from unmask.hub.classics import read_bert, read_gpt2
from unmask.hub.parts import Parts, grown
from unmask.hub.pickles import read_pickle, with_own_data
from unmask.imports import extra
from unmask.vocabulary import Vocabulary

Reader = Callable[[Mapping[str, Any], Mapping[str, Tensor], str], Parts]

READERS: dict[str, Reader] = {  # by model_type
    "mdlm": read_mdlm,
    "bert": read_bert,
    "roberta": read_bert,
    "gpt2": read_gpt2,
}
_OF_TOKENIZERS = ["tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "alphabet.json"]
_OF_MODELS = ["config.json", "generation_config.json", "model*.safetensors", "model*.index.json"]
_NEEDED = [*_OF_MODELS, *_OF_TOKENIZERS]
_PICKLED = "pytorch_model.bin"
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "vocabulary.json")
_TABLES = ("embedding.weight", "head.weight", "head.bias")
# whose tokenizer a checkpoint without one has, by the rows of its tables
_USUAL_TOKENIZERS = {
    50257: "openai-community/gpt2",
    50258: "openai-community/gpt2",
    30522: "google-bert/bert-base-uncased",
}


def read(source: str | Path, tokenizer: str | None = None, averaged: bool = True) -> Model:
    """A model of others: a Lightning checkpoint, a folder in the hub's layout, or a name on the hub."""
    if isinstance(source, str) and hub_name(source) is not None:
        return fetch(source, tokenizer)
    path = Path(source)
    if path.is_dir():
        return read_folder(path, tokenizer)
    if not path.is_file():
        raise UnmaskError(f"no checkpoint {str(source)!r}: give a file, a folder or owner/name")
    with refusing(f"{path} cannot be read"):
        parts = read_lightning(read_pickle(path, objects=True), str(path), averaged)
    return assembled(parts, find_tokenizer(path.parent, parts, tokenizer), str(path))


def fetch(name: str, tokenizer: str | None = None) -> Model:
    """A model of the hub, from the local cache where it is there; its tokenizer is called as it is."""
    folder = download(name)
    model = read_folder(folder, tokenizer)
    data = model.config.data
    if data.tokenizer.path == str(folder):  # which means nothing to others
        known, _ = at_revision(hub_name(name) or name)
        data = replace(data, tokenizer=replace(data.tokenizer, path=known))
        model.config = replace(model.config, data=data)
    return model


def download(name: str) -> Path:
    """The files of a model that are data; no code is fetched."""
    folder = _snapshot(name, _NEEDED)
    return folder if any(folder.glob("*.safetensors")) else _snapshot(name, [*_NEEDED, _PICKLED])


def _snapshot(name: str, patterns: list[str]) -> Path:
    """Some files of a model on the hub, from the local cache where they are there."""
    found, revision = at_revision(hub_name(name) or name)
    hub = extra("huggingface_hub", f"the model {found!r} (no such folder here)", "hub")
    try:
        return Path(hub.snapshot_download(found, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the library's, its HTTP client's, the system's
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnmaskError(
            f"no folder {found!r} here, and the hub does not give it: {reason}"
        ) from None


def read_folder(folder: Path, tokenizer: str | None = None) -> Model:
    """A model in a layout of the hub: config.json says which."""
    tree = _json(folder / "config.json")
    kind = tree.get("model_type")
    if kind == own.MODEL_TYPE:
        return own.read(folder, tree, read_tensors(folder))
    if kind is None and "graph" in tree:
        reader: Reader = read_sedd
    elif kind in READERS:
        reader = READERS[kind]
    else:
        known = ", ".join([own.MODEL_TYPE, *READERS])
        raise UnmaskError(f"{folder} holds a model of type {kind!r}; those that are read: {known}")
    where = str(folder)
    with refusing(f"{folder} cannot be read"):
        parts = reader(tree, read_tensors(folder), where)
    return assembled(parts, find_tokenizer(folder, parts, tokenizer), where)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The weights of a folder: one safetensors file or several, or a pickle of nothing but tensors."""
    with refusing(f"the weights in {folder} cannot be read"):
        if (folder / "model.safetensors").is_file():
            return safetensors.torch.load_file(folder / "model.safetensors")
        if (folder / "model.safetensors.index.json").is_file():
            return _shards(folder)
        if (folder / _PICKLED).is_file():
            return with_own_data(dict(read_pickle(folder / _PICKLED)), str(folder))
    raise UnmaskError(f"{folder} has no weights: model.safetensors is missing")


def find_tokenizer(folder: Path, parts: Parts, given: str | None = None) -> Tokenizer:
    """The tokenizer that was given, the folder's own, or the one that such checkpoints have."""
    if given is not None:
        return load_tokenizer(given if Path(given).is_dir() else _tokenizer_of(given))
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return load_tokenizer(folder)
    try:
        return load_tokenizer(_tokenizer_of(_USUAL_TOKENIZERS[parts.size]))
    except (KeyError, UnmaskError):  # none is known, or it cannot be had: said when text comes
        if not parts.exact and parts.sections["method"]["name"] == "mdlm":
            raise UnmaskError(
                f"{folder} has no tokenizer, and one of its ids is [MASK]: put its tokenizer files there, "
                "or name one with 'unmask convert --tokenizer'"
            ) from None
        mask_id = parts.size - 1 if parts.exact else parts.size  # one that no token has
        return AbsentTokenizer(Vocabulary(mask_id + 1, mask_id))


def _tokenizer_of(name: str) -> Path:
    return _snapshot(name, _OF_TOKENIZERS)


def assembled(parts: Parts, tokenizer: Tokenizer, where: str) -> Model:
    """The model of these parts; tables grow where the tokenizer has more ids than the checkpoint."""
    vocabulary = tokenizer.vocabulary
    if (
        vocabulary.size < parts.size and not parts.exact
    ):  # rows that no token has, as in GPU-friendly sizes
        vocabulary = replace(vocabulary, size=parts.size)
        tokenizer = tokenizer.having(vocabulary, tokenizer.labels)
    if vocabulary.size != parts.size and parts.exact:
        raise UnmaskError(
            f"{where} has {parts.size:,} ids, MASK included, and the tokenizer {vocabulary.size:,}: "
            "it belongs to another model"
        )
    weights = dict(parts.weights)
    for name in _TABLES:
        if not parts.exact and name in weights and len(weights[name]) == parts.size:
            weights[name] = grown(weights[name], vocabulary.size)
    data = {"length": parts.length, "tokenizer": {"kind": "hf", "path": where}}
    config = from_dict({**parts.sections, "data": data})
    named = {f"backbone.{name}": tensor for name, tensor in weights.items()}
    return Model(restored(config, vocabulary, named, Path(where)), tokenizer, config)


def _shards(folder: Path) -> dict[str, Tensor]:
    """Weights in several files: each name in the file that the index says, and nowhere else."""
    index = _json(folder / "model.safetensors.index.json").get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
        raise UnmaskError(f"{folder} has an index of weights that cannot be read")
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(index.values())):
        if Path(file).name != file:
            raise UnmaskError(f"{folder}: the index of weights leads out of its folder")
        tensors |= safetensors.torch.load_file(folder / file)
    if tensors.keys() != index.keys():
        odd = sorted(tensors.keys() ^ index.keys())[0]
        raise UnmaskError(f"{folder}: the index of weights and its files differ, in {odd}")
    return tensors


def _json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(foreign_text(path))
    except (ValueError, RecursionError):
        raise UnmaskError(f"{path} is not JSON") from None
    if not isinstance(tree, dict):
        raise UnmaskError(f"{path} holds no table of settings")
    return tree
