"""Reads, writes and pushes models in the layout of the Hugging Face hub."""

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.bundle import Bundle
from unmask.config.run_config import from_dict, to_dict
from unmask.data.tokenizers.kinds import TextFiles, parse_tokenizer
from unmask.data.tokenizers.no_tokenizer import NoTokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files.storage import atomic_folder, write_json
from unmask.files.tensors import system_errors
from unmask.files.untrusted import foreign_text, refusing
from unmask.formats.foreign import FLOATS, as_float, hub_config, read_tensors
from unmask.formats.format import FORMATS, Format
from unmask.formats.model_card import hub_page
from unmask.formats.redact import portable
from unmask.formats.tokenizer_files import tokenizer_files
from unmask.formats.weights import restored
from unmask.generation.sampling_params import USUAL
from unmask.imports import extra
from unmask.methods.sequence_classifier import as_classifier

MODEL_TYPE = "unmask"  # the model type in transformers
GENERATION = "generation_config.json"
# subfolder for `load_tokenizer`; the files for AutoTokenizer are in the model folder itself
TOKENIZER = "tokenizer"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = "5GB"  # largest file of weights; larger weights are split
_AUTO_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_WRITTEN = {"config.json", GENERATION, TOKENIZER, "README.md", WEIGHTS, INDEX, *_AUTO_TOKENIZER}


def write(
    bundle: Bundle,
    folder: str | Path,
    shard: str | int = SHARD,
    card: str | Mapping[str, Any] | None = None,
    licence: str | None = None,
    name: str | None = None,
) -> None:
    """Writes a folder that `unmask.load` and the Auto classes of transformers read.

    The Auto classes need `import unmask.integrations.transformers` first. `name` is the model's
    name on the card; the default is the name of the folder.
    """
    hub = extra("huggingface_hub", "save_pretrained", "hub")
    target = Path(folder)
    texts = tokenizer_files(bundle.tokenizer, bundle.length)
    _check_overwrite(target)
    weights = {name: tensor.contiguous() for name, tensor in bundle.method.state_dict().items()}
    with atomic_folder(target) as new:
        with system_errors(target):
            hub.save_torch_state_dict(weights, new, max_shard_size=shard)
        write_json(new / "config.json", config_json(bundle))
        write_json(new / GENERATION, generation_json(bundle))
        bundle.tokenizer.save(new / TOKENIZER)
        for file, content in texts.items():
            (new / file).write_text(content, encoding="utf-8")
        text = hub_page(bundle, name or target.name, card, licence)
        (new / "README.md").write_text(text, encoding="utf-8")
    (target / "manifest.json").unlink()  # git and the hub keep their own hashes


def push(
    bundle: Bundle,
    name: str,
    private: bool = False,
    revision: str | None = None,
    commit_message: str = "unmask",
    **options: Any,
) -> str:
    """Uploads the model to the hub as "owner/name" and returns its address.

    The login is that of `hf auth login`. `revision` is a branch; it is created if it is missing.
    """
    hub = extra("huggingface_hub", "push_to_hub", "hub")
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / name.rpartition("/")[2]
        write(bundle, folder, name=name, **options)
        try:
            repo = hub.create_repo(name, private=private, exist_ok=True)
            if revision is not None:
                hub.create_branch(repo.repo_id, branch=revision, exist_ok=True)
            if repo.repo_id != name:  # the hub adds the user to a bare name
                text = hub_page(bundle, repo.repo_id, options.get("card"), options.get("licence"))
                (folder / "README.md").write_text(text, encoding="utf-8")
            before = _remote_weights(hub, repo.repo_id, revision)
            stale = sorted(before - {path.name for path in folder.iterdir()})
            hub.upload_folder(
                repo_id=repo.repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=revision,
                delete_patterns=stale or None,
            )
        except Exception as error:  # of the library, its HTTP client or the system
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise UnmaskError(f"the hub refused {name!r}: {reason}") from None
    return str(repo)


def _remote_weights(hub: Any, name: str, revision: str | None) -> set[str]:
    """The weight files of an earlier push: the single file, the index and its shards."""
    files = set(hub.list_repo_files(name, revision=revision))
    named = {WEIGHTS, INDEX}
    if INDEX in files:
        named |= _shards(Path(hub.hf_hub_download(name, INDEX, revision=revision)))
    return named & files


def _shards(index: Path) -> set[str]:
    """The shards in an index of weights; names that do not look like shards are skipped."""
    try:
        files = set(json.loads(foreign_text(index))["weight_map"].values())
    except (UnmaskError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return set()
    return {str(file) for file in files if re.fullmatch(r"model-[\w-]+\.safetensors", str(file))}


def _check_overwrite(target: Path) -> None:
    """Raises an error if a folder holds files that are no part of a model and would be lost."""
    if not target.exists():
        return
    if not target.is_dir():
        raise UnmaskError(f"{target} is a file: give a folder")
    ours = _WRITTEN | _shards(target / INDEX)
    existing = sorted(path.name for path in target.iterdir())
    if others := [name for name in existing if name not in ours]:
        raise UnmaskError(
            f"{target} already exists and holds {others[0]!r}, which is no part of a model: "
            "give another folder"
        )
    if existing and not _is_ours(target / "config.json"):
        raise UnmaskError(f"{target} already exists and is no unmask model: give another folder")


def _is_ours(config: Path) -> bool:
    try:
        return bool(json.loads(foreign_text(config))["model_type"] == MODEL_TYPE)
    except (UnmaskError, ValueError, KeyError, TypeError, RecursionError):
        return False


def config_json(bundle: Bundle) -> dict[str, Any]:
    """The config.json for transformers, with the run configuration inside."""
    vocabulary, backbone = bundle.tokenizer.vocabulary, bundle.config.backbone.config
    shape = {
        "hidden_size": getattr(backbone, "width", None),
        "num_hidden_layers": getattr(backbone, "depth", None),
        "num_attention_heads": getattr(backbone, "heads", None),
    }
    task = "ForMaskedLM" if bundle.method.capabilities.masked_lm else "Model"
    task = "ForSequenceClassification" if as_classifier(bundle.method) else task
    return {
        "model_type": MODEL_TYPE,
        "architectures": [f"Unmask{task}"],
        "dtype": "float32",
        "vocab_size": vocabulary.size,
        "max_position_embeddings": bundle.length,
        **{name: value for name, value in shape.items() if value is not None},
        "mask_token_id": vocabulary.mask_id,
        "pad_token_id": vocabulary.pad_id,
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        "tie_word_embeddings": False,
        "vocabulary": vocabulary.to_dict(),
        "tokenizer": {"kind": bundle.tokenizer.kind, "labels": bundle.tokenizer.labels},
        "generation": bundle.defaults,
        "run": to_dict(portable(bundle.config)),
        **class_fields(bundle),
    }


def class_fields(bundle: Bundle) -> dict[str, Any]:
    """The classes of a classifier, under the names of transformers; nothing for other models."""
    method = as_classifier(bundle.method)
    if method is None:
        return {}
    names = method.config.names or tuple(bundle.tokenizer.labels)
    names = names or tuple(f"LABEL_{number}" for number in range(method.outputs))
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
        "problem_type": "regression" if method.regression else "single_label_classification",
    }


def generation_json(bundle: Bundle) -> dict[str, Any]:
    """The generation_config.json: special ids and the defaults of `generate`."""
    vocabulary = bundle.tokenizer.vocabulary
    ids = {"bos": vocabulary.bos_id, "eos": vocabulary.eos_id, "pad": vocabulary.pad_id}
    given = {f"{role}_token_id": id for role, id in ids.items() if id is not None}
    return {**given, **bundle.defaults}


def read(folder: Path) -> Bundle:
    """The model that `write`, or later `save_pretrained` of transformers, wrote."""
    tree, tensors = hub_config(folder) or {}, read_tensors(folder)
    with refusing(f"{folder} cannot be read"):
        config = from_dict(tree["run"])
        defaults = _generation(folder, tree)
        tokenizer = _tokenizer(folder, tree)
        weights = {name: _in_fp32(tensor, name, folder) for name, tensor in tensors.items()}
        method = restored(config, tokenizer.vocabulary, weights, folder)
        return Bundle(method, tokenizer, config, defaults)


def _in_fp32(tensor: Tensor, name: str, folder: Path) -> Tensor:
    """A weight in float32; transformers saves weights in the dtype of the computation."""
    return as_float(tensor, name, str(folder)) if tensor.dtype in FLOATS else tensor


def _generation(folder: Path, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of `generate`, from generation_config.json or else from config.json."""
    if (folder / GENERATION).is_file():
        tree = json.loads(foreign_text(folder / GENERATION))
    else:
        tree = tree.get("generation") or {}
    return {name: tree[name] for name in tree if name in USUAL or "." in name}


def _tokenizer(folder: Path, tree: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of the subfolder, or else of tokenizer.json, or else a placeholder."""
    if (folder / TOKENIZER).is_dir():
        return parse_tokenizer(TextFiles(folder / TOKENIZER, inside=_home(folder)))
    state = {"kind": "subwords", **tree.get("tokenizer", {}), "vocabulary": tree["vocabulary"]}
    files, name = TextFiles(folder, inside=_home(folder)), "tokenizer.json"
    given = {name: files[name]} if name in files else {}
    try:
        return parse_tokenizer({**given, "vocabulary.json": json.dumps(state)})
    except KeyError:
        if given:
            raise
        state["kind"] = NoTokenizer.kind  # the files of this kind are missing
        return parse_tokenizer({"vocabulary.json": json.dumps(state)})


def _home(folder: Path) -> Path:
    """The folder that links may not leave: the model folder, or its repository in the hub's cache.

    In the cache every file is a link from snapshots/REVISION to the folder blobs.
    """
    return folder.parent.parent if folder.parent.name == "snapshots" else folder


@FORMATS.register("huggingface")
class HuggingFaceFormat(Format):
    """Models of unmask in the layout of the Hugging Face hub, which transformers reads."""

    @classmethod
    def matches(cls, path: Path) -> bool:
        """True if config.json has the model type of unmask."""
        return (hub_config(path) or {}).get("model_type") == MODEL_TYPE

    @classmethod
    def read(cls, path: Path) -> Bundle:
        """The model that `write`, or later `save_pretrained` of transformers, wrote."""
        return read(path)

    @classmethod
    def write(cls, bundle: Bundle, folder: Path) -> None:
        """Writes the folder, with a model card."""
        write(bundle, folder)

    @classmethod
    def check_target(cls, folder: Path) -> None:
        """Raises an error if huggingface_hub is missing or the folder holds no unmask model.

        An empty folder is allowed. `write` later checks every file of the folder.
        """
        if not _is_ours(folder / "config.json"):
            super().check_target(folder)
        extra("huggingface_hub", "--pretrained", "hub")
