"""A model as a folder: weights, tokenizer, configuration, and how it writes unless told otherwise."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.api.build import restored, stored, within
from unmask.api.sampling import Sampling
from unmask.config.run import RunConfig, from_dict, to_dict
from unmask.config.values import read_value
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.files.storage import Damaged, atomic_folder, read_json, verify, write_json
from unmask.files.tensors import read_tensors, write_weights
from unmask.methods.method import Method
from unmask.runtime.device import PRECISIONS

# what a model may have a usual value of: options of `generate`
USUAL = ("length", "sampler", "steps", "temperature", "top_k", "top_p")


def write_model(
    folder: str | Path,
    method: Method,
    tokenizer: Tokenizer,
    config: RunConfig,
    defaults: Mapping[str, Any],
    precision: str,
) -> None:
    """Writes a folder that `read_model` reads; bf16 takes half the room and rounds the weights."""
    target = Path(folder)
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    if target.exists() and not (target / "model.json").exists():
        raise UnmaskError(f"{target} is there already and is no exported model")
    content = {"format": 1, "precision": precision, "config": to_dict(config)}
    if defaults:
        content["defaults"] = checked_defaults(defaults)
    with atomic_folder(target) as new:
        write_weights(new, stored(method.state_dict(), PRECISIONS[precision]))
        write_json(new / "model.json", content)
        tokenizer.save(new / "tokenizer")


def read_model(folder: Path) -> tuple[Method, Tokenizer, RunConfig, dict[str, Any]]:
    """The parts of a model that `write_model` wrote, its weights in fp32 again."""
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
    return method, tokenizer, config, defaults


def checked_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Usual values of options, each of its type."""
    for name in defaults:
        if name not in USUAL:
            raise unknown("default", name, USUAL)
    given = dict(defaults)
    checked = {}
    if "length" in given:
        checked["length"] = _length(given.pop("length"))
    sampling = Sampling.of(given)
    return checked | {name: getattr(sampling, name) for name in given}


def _length(value: Any) -> int:
    try:
        length = read_value(int, value)
    except ValueError as error:
        raise UnmaskError(f"length: {error}") from None
    if length < 2:
        raise UnmaskError(f"length must be 2 or more, not {length}")
    return length
