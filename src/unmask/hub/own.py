"""Our own models in the layout of the hub: what `save_pretrained` writes and `load` reads."""

import json
import tempfile
from collections.abc import Mapping, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.api import Model
from unmask.api.build import restored
from unmask.api.saving import USUAL
from unmask.config import from_dict, to_dict
from unmask.data import load_tokenizer
from unmask.data.extras import extra
from unmask.data.foreign import foreign_text, refusing
from unmask.errors import UnmaskError
from unmask.hub.cards import page
from unmask.hub.tokenizer_files import tokenizer_files
from unmask.training import atomic_folder, write_json

MODEL_TYPE = "unmask"
GENERATION = "generation_config.json"
TOKENIZER = (
    "tokenizer"  # the tokenizer as `load_tokenizer` reads it; beside it, as AutoTokenizer does
)
SHARD = "5GB"  # weights beyond it go into several files


def write(
    model: Model,
    folder: str | Path,
    shard: str | int = SHARD,
    card: str | Mapping[str, Any] | None = None,
    licence: str | None = None,
    name: str | None = None,
) -> None:
    """A folder that transformers' Auto classes read after `import unmask`, and `unmask.load` too.

    `name` is what the card calls the model: the folder's own unless given.
    """
    hub = extra("huggingface_hub", "save_pretrained", "hub")
    target = Path(folder)
    texts = tokenizer_files(model.tokenizer, model.length)
    _check_free(target, {"config.json", GENERATION, TOKENIZER, "README.md", *texts})
    weights = {name: tensor.contiguous() for name, tensor in model.method.state_dict().items()}
    with atomic_folder(target) as new:
        hub.save_torch_state_dict(weights, new, max_shard_size=shard)
        write_json(new / "config.json", config_json(model))
        write_json(new / GENERATION, generation_json(model))
        model.tokenizer.save(new / TOKENIZER)
        for file, content in texts.items():
            (new / file).write_text(content, encoding="utf-8")
        text = page(model, name or target.name, card, licence)
        (new / "README.md").write_text(text, encoding="utf-8")
    (target / "manifest.json").unlink()  # git and the hub keep hashes of their own


def push(model: Model, name: str, private: bool = False, **options: Any) -> str:
    """Writes the model to the hub, under "owner/name"; who may is what `hf auth login` has settled."""
    hub = extra("huggingface_hub", "push_to_hub", "hub")
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / name.rpartition("/")[2]
        write(model, folder, name=name, **options)
        try:
            repo = hub.create_repo(name, private=private, exist_ok=True)
            hub.upload_folder(repo_id=repo.repo_id, folder_path=folder, commit_message="unmask")
        except Exception as error:  # the library's, its HTTP client's, the system's
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise UnmaskError(f"the hub does not take {name!r}: {reason}") from None
    return str(repo)


def _check_free(target: Path, ours: Set[str]) -> None:
    """An error if a folder holds what is not ours, which would be lost with what it holds of ours."""
    if not target.exists():
        return
    if not target.is_dir():
        raise UnmaskError(f"{target} is a file: give a folder")
    weights = (".safetensors", ".safetensors.index.json")
    others = [
        path.name
        for path in sorted(target.iterdir())
        if path.name not in ours and not path.name.endswith(weights)
    ]
    if others:
        raise UnmaskError(
            f"{target} is there already and holds {others[0]!r}, which is no part of a model: "
            "give another folder"
        )
    config = target / "config.json"
    if any(target.iterdir()) and not (config.is_file() and MODEL_TYPE in config.read_text("utf-8")):
        raise UnmaskError(f"{target} is there already and is no model of ours: give another folder")


def config_json(model: Model) -> dict[str, Any]:
    """What a configuration of transformers says, with ours inside."""
    vocabulary, backbone = model.tokenizer.vocabulary, model.config.backbone.config
    shape = {
        "hidden_size": getattr(backbone, "width", None),
        "num_hidden_layers": getattr(backbone, "depth", None),
        "num_attention_heads": getattr(backbone, "heads", None),
    }
    masked = model.method.order == "any"
    return {
        "model_type": MODEL_TYPE,
        "architectures": ["UnmaskForMaskedLM" if masked else "UnmaskModel"],
        "dtype": "float32",
        "vocab_size": vocabulary.size,
        "max_position_embeddings": model.length,
        **{name: value for name, value in shape.items() if value is not None},
        "mask_token_id": vocabulary.mask_id,
        "pad_token_id": vocabulary.pad_id,
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        "tie_word_embeddings": False,
        "vocabulary": asdict(vocabulary),
        "run": to_dict(model.config),
    }


def generation_json(model: Model) -> dict[str, Any]:
    """How the model writes unless told otherwise."""
    vocabulary = model.tokenizer.vocabulary
    ids = {"bos": vocabulary.bos_id, "eos": vocabulary.eos_id, "pad": vocabulary.pad_id}
    given = {f"{role}_token_id": id for role, id in ids.items() if id is not None}
    return {**given, **model.defaults}


def read(folder: Path, tree: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Model:
    """The model that `write` wrote."""
    with refusing(f"{folder} cannot be read"):
        config = from_dict(tree["run"])
        usual = _generation(folder)
        tokenizer = load_tokenizer(folder / TOKENIZER)
        method = restored(config, tokenizer.vocabulary, tensors, folder)
        return Model(method, tokenizer, config, usual)


def _generation(folder: Path) -> dict[str, Any]:
    if not (folder / GENERATION).is_file():
        return {}
    tree = json.loads(foreign_text(folder / GENERATION))
    return {name: tree[name] for name in USUAL if name in tree}
