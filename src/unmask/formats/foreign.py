"""Shared parts of the readers of foreign checkpoints: weights, settings, names of tensors."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.files.untrusted import foreign_text, refusing
from unmask.formats.pickle import checked_memory, read_pickle

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Into:
    """Precision and place of weights in memory; without a device, that of the file's tensors."""

    dtype: torch.dtype = torch.float32
    device: torch.device | None = None


@dataclass(frozen=True)
class ForeignCheckpoint:
    """A foreign model: sections of a configuration, and weights under the names of unmask."""

    sections: dict[str, Any]  # method, schedule and backbone, as in a recipe
    length: int
    size: int  # rows of the embedding and the head
    weights: dict[str, Tensor]
    taken: bool = False  # True if nothing else holds the tensors, so that the network may take them
    mask_id: int | None = None  # the id of MASK if the format names it; None: the tokenizer's
    exact: bool = True  # True if `size` includes MASK; otherwise rows may be added
    defaults: dict[str, Any] = field(default_factory=dict)  # of options of `generate`


def renamed(
    tensors: Mapping[str, Tensor], rules: Sequence[tuple[str, str]], where: str
) -> dict[str, Tensor]:
    """Tensors in float32 under new names, by rules (pattern of the whole old name, new name).

    A name that no pattern matches is an error.
    """
    compiled = [(re.compile(old), new) for old, new in rules]
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        found = [match.expand(new) for old, new in compiled if (match := old.fullmatch(name))]
        if not found:
            raise UnmaskError(f"{where} does not fit: {name} is not expected")
        if found[0] in result:
            raise UnmaskError(f"{where} does not fit: {name} occurs twice")
        result[found[0]] = as_float(tensor, name, where)
    return result


def as_float(tensor: Any, name: str, where: str) -> Tensor:
    """A weight in float32; an error if it is not of a floating-point type."""
    return check_float(tensor, name, where).to(torch.float32)


def check_float(tensor: Any, name: str, where: str) -> Tensor:
    """A weight as it is; an error if it is not of a floating-point type."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in FLOATS:
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise UnmaskError(f"{where} does not fit: {name} is {kind}, but weights are floats")
    return tensor.detach()


def with_rows(table: Tensor, size: int) -> Tensor:
    """A table extended to `size` rows. New rows are the mean of the old ones."""
    new = size - len(table)
    if new <= 0:
        return table
    return torch.cat([table, table.mean(0, keepdim=True).expand(new, *table.shape[1:])])


PICKLED = "pytorch_model.bin"


class StoredTensors(Mapping[str, Tensor]):
    """The weights of safetensors files by name; a lookup reads one tensor."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files: dict[str, Path] = {}
        for file in files:
            with safetensors.safe_open(file, "pt") as opened:
                self._files |= dict.fromkeys(opened.keys(), file)

    def __getitem__(self, name: str) -> Tensor:
        # a handle maps its file: with one for each tensor, memory of the file is freed with the tensor
        with safetensors.safe_open(self._files[name], "pt") as opened:
            tensor: Tensor = opened.get_tensor(name)
            return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def shapes(self) -> dict[str, Tensor]:
        """Tensors of the same shapes and types on the meta device, from the headers."""
        found = {}
        for file in sorted(set(self._files.values())):
            with safetensors.safe_open(file, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118
                    part = opened.get_slice(name)
                    dtype = _TYPES.get(part.get_dtype(), torch.int8)
                    found[name] = torch.empty(part.get_shape(), dtype=dtype, device="meta")
        return found


def read_tensors(folder: Path) -> Mapping[str, Tensor]:
    """The weights of a folder: one safetensors file, several with an index, or a pickle."""
    with refusing(f"the weights in {folder} cannot be read"):
        if (folder / "model.safetensors").is_file():
            return StoredTensors([folder / "model.safetensors"])
        if (folder / "model.safetensors.index.json").is_file():
            index = _index(folder)
            stored = StoredTensors(folder / file for file in sorted(set(index.values())))
            if stored.keys() != index.keys():
                odd = min(stored.keys() ^ index.keys())
                raise UnmaskError(f"{folder}: the index of weights and its files differ in {odd}")
            return stored
        if (folder / PICKLED).is_file():
            return checked_memory(dict(read_pickle(folder / PICKLED)), str(folder))
    raise UnmaskError(f"{folder} has no weights: model.safetensors is missing")


def shapes_of(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Weights without data, on the meta device; those of a pickle as they are.

    Args:
        tensors: the weights from `read_tensors`.

    Returns:
        Tensors of the same shapes and types.
    """
    return tensors.shapes() if isinstance(tensors, StoredTensors) else tensors


def _index(folder: Path) -> dict[str, str]:
    """The file of each weight."""
    index = json_object(folder / "model.safetensors.index.json").get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
        raise UnmaskError(f"{folder} has an index of weights that cannot be read")
    for file in index.values():
        if Path(file).name != file:
            raise UnmaskError(f"{folder}: the index of weights leads out of its folder")
        if not (folder / file).is_file():
            raise UnmaskError(f"{folder} lacks the file {file} of its weights: copy it there")
    return index


def json_object(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(foreign_text(path))
    except (ValueError, RecursionError):
        raise UnmaskError(f"{path} is not JSON") from None
    if not isinstance(tree, dict):
        raise UnmaskError(f"{path} holds no JSON object")
    return tree


def hub_config(folder: Path) -> dict[str, Any] | None:
    """The config.json of a folder in the hub's layout; None if it is missing or unreadable."""
    if (folder / "model.json").exists() or not (folder / "config.json").is_file():
        return None
    try:
        return json_object(folder / "config.json")
    except (UnmaskError, OSError):
        return None


T = TypeVar("T", int, float, str, bool)


class ForeignSettings:
    """An untrusted tree of settings, with its origin for error messages."""

    def __init__(self, tree: Any, where: str) -> None:
        if not isinstance(tree, Mapping):
            raise UnmaskError(f"{where}: the settings are not a mapping of names to values")
        self.tree, self.where = tree, where

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """The setting at a dotted name; an error if it is missing or of another type."""
        value = self._find(name)
        if value is None:
            value = default
        if value is None:
            raise UnmaskError(f"{self.where} has no setting {name}")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise UnmaskError(f"{self.where}: {name} is {value!r}, which is no {kind.__name__}")
        return value

    def require(self, name: str, *supported: Any) -> None:
        """Raises an error unless a setting is `supported`; other values mean another network."""
        value = self._find(name)
        if value not in supported:
            known = " or ".join(map(repr, supported))
            raise UnmaskError(f"{self.where}: {name} is {value!r}; only {known} is supported")

    def _find(self, name: str) -> Any:
        value: Any = self.tree
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value
