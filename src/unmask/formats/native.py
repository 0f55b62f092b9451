"""The own format of model folders: weights, tokenizer, configuration and defaults of `generate`."""

from pathlib import Path

from unmask.bundle import Bundle
from unmask.config.run_config import from_dict, to_dict
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.files.storage import Damaged, atomic_folder, read_json, verify, write_json
from unmask.files.tensors import read_tensors, write_weights
from unmask.files.untrusted import within
from unmask.formats.weights import restored, stored
from unmask.generation.sampling_params import checked_defaults
from unmask.runtime.device import PRECISIONS


def write_folder(bundle: Bundle, folder: str | Path, precision: str = "fp32") -> None:
    """Writes a folder that `read_folder` reads; bf16 takes half the room and rounds the weights."""
    target = Path(folder)
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    if target.exists() and not (target / "model.json").exists():
        raise UnmaskError(f"{target} is there already and is no exported model")
    content = {"format": 1, "precision": precision, "config": to_dict(bundle.config)}
    if bundle.defaults:
        content["defaults"] = checked_defaults(bundle.defaults)
    with atomic_folder(target) as new:
        write_weights(new, stored(bundle.method.state_dict(), PRECISIONS[precision]))
        write_json(new / "model.json", content)
        bundle.tokenizer.save(new / "tokenizer")


def read_folder(folder: Path) -> Bundle:
    """The bundle that `write_folder` wrote, its weights in fp32 again."""
    verify(folder, "model.json", "model.safetensors", others=True)
    try:
        content = read_json(folder / "model.json")
        config = from_dict(content["config"])
        precision = content.get("precision", "fp32")
        defaults = checked_defaults(content.get("defaults", {}))
        if precision not in PRECISIONS:
            raise ValueError(precision)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged(f"{folder} is damaged: model.json cannot be read") from None
    tokenizer = load_tokenizer(within(folder, "tokenizer"))
    where, weights = folder / "model.safetensors", read_tensors(folder)
    method = restored(config, tokenizer.vocabulary, weights, where, PRECISIONS[precision])
    return Bundle(method, tokenizer, config, defaults)
