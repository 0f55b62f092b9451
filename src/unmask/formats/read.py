"""A bundle from a run folder, an exported folder, a checkpoint of others, or a name."""

from dataclasses import replace
from pathlib import Path

from unmask import shipped
from unmask.bundle import Bundle
from unmask.config.run_config import from_dict, load_recipe, resolve
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.no_tokenizer import AbsentTokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files.hub import at_revision, hub_name
from unmask.files.untrusted import refusing, within
from unmask.formats import huggingface, native
from unmask.formats.bert_gpt2 import read_bert, read_gpt2
from unmask.formats.foreign import _PICKLED, Parts, Reader, _json, grown, read_tensors
from unmask.formats.mdlm_sedd import read_lightning, read_mdlm, read_sedd
from unmask.formats.pickle import read_pickle
from unmask.formats.weights import restored
from unmask.imports import extra
from unmask.training.checkpoints.checkpoint import run_weights
from unmask.vocabulary import Vocabulary

READERS: dict[str, Reader] = {  # by model_type
    "mdlm": read_mdlm,
    "bert": read_bert,
    "roberta": read_bert,
    "gpt2": read_gpt2,
}
_OF_TOKENIZERS = ["tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "alphabet.json"]
_OF_MODELS = ["config.json", "generation_config.json", "model*.safetensors", "model*.index.json"]
_NEEDED = [*_OF_MODELS, *_OF_TOKENIZERS]
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "vocabulary.json")
_TABLES = ("embedding.weight", "head.weight", "head.bias")
# whose tokenizer a checkpoint without one has, by the rows of its tables
_USUAL_TOKENIZERS = {
    50257: "openai-community/gpt2",
    50258: "openai-community/gpt2",
    30522: "google-bert/bert-base-uncased",
}


def read_bundle(path: str | Path) -> Bundle:
    """The model in a run folder, an exported folder or a hub's layout, shipped, or on the hub, by name."""
    if hub_name(path) is not None:
        return fetch(str(path))
    folder = shipped.locate(path)
    if (folder / "model.json").exists():
        return native.read_folder(folder)
    if (folder / "config.json").exists():
        return read_folder(folder)
    if not (folder / "config.yaml").exists():
        raise UnmaskError(f"{str(path)!r} holds no model: neither model.json nor config.yaml")
    if (folder / "model").is_dir():
        return native.read_folder(within(folder, "model"))
    config = resolve(load_recipe(str(within(folder, "config.yaml"))))
    tokenizer = load_tokenizer(within(folder, "tokenizer"))
    method = restored(config, tokenizer.vocabulary, run_weights(folder, print), folder)
    return Bundle(method, tokenizer, config)


def read(source: str | Path, tokenizer: str | None = None, averaged: bool = True) -> Bundle:
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


def fetch(name: str, tokenizer: str | None = None) -> Bundle:
    """A model of the hub, from the local cache where it is there; its tokenizer is called as it is."""
    folder = download(name)
    bundle = read_folder(folder, tokenizer)
    data = bundle.config.data
    if data.tokenizer.path == str(folder):  # which means nothing to others
        known, _ = at_revision(hub_name(name) or name)
        data = replace(data, tokenizer=replace(data.tokenizer, path=known))
        return replace(bundle, config=replace(bundle.config, data=data))
    return bundle


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


def read_folder(folder: Path, tokenizer: str | None = None) -> Bundle:
    """A model in a layout of the hub: config.json says which."""
    tree = _json(folder / "config.json")
    kind = tree.get("model_type")
    if kind == huggingface.MODEL_TYPE:
        return huggingface.read(folder, tree, read_tensors(folder))
    if kind is None and "graph" in tree:
        reader: Reader = read_sedd
    elif kind in READERS:
        reader = READERS[kind]
    else:
        known = ", ".join([huggingface.MODEL_TYPE, *READERS])
        raise UnmaskError(f"{folder} holds a model of type {kind!r}; those that are read: {known}")
    where = str(folder)
    with refusing(f"{folder} cannot be read"):
        parts = reader(tree, read_tensors(folder), where)
    return assembled(parts, find_tokenizer(folder, parts, tokenizer), where)


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


def assembled(parts: Parts, tokenizer: Tokenizer, where: str) -> Bundle:
    """The model of these parts; tables grow where the tokenizer has more ids than the checkpoint."""
    vocabulary = tokenizer.vocabulary
    if (
        vocabulary.size < parts.size and not parts.exact
    ):  # rows that no token has, as in GPU-friendly sizes
        vocabulary = vocabulary.extended(parts.size)
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
    return Bundle(restored(config, vocabulary, named, Path(where)), tokenizer, config)
