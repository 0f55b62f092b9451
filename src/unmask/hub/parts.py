"""What every reader makes of a checkpoint."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UnmaskError

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Parts:
    """A foreign model in our words: sections of a configuration, and the network's weights by our names."""

    sections: dict[str, Any]  # method, schedule, backbone as a recipe has them
    length: int
    size: int  # ids in its tables
    weights: dict[str, Tensor]
    exact: bool = True  # has it a row for MASK already? or else the tables grow


def renamed(
    tensors: Mapping[str, Tensor], rules: Sequence[tuple[str, str]], where: str
) -> dict[str, Tensor]:
    """Tensors under our names by patterns of theirs, whole names; one that none fits is an error."""
    compiled = [(re.compile(old), new) for old, new in rules]
    ours: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        found = [match.expand(new) for old, new in compiled if (match := old.fullmatch(name))]
        if not found:
            raise UnmaskError(f"{where} does not fit: {name} is not expected")
        if found[0] in ours:
            raise UnmaskError(f"{where} does not fit: {name} is there twice")
        ours[found[0]] = as_float(tensor, name, where)
    return ours


def as_float(tensor: Any, name: str, where: str) -> Tensor:
    """Weights in float32, from the types that weights come in."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in FLOATS:
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise UnmaskError(f"{where} does not fit: {name} is {kind}, and weights are floats")
    return tensor.detach().to(torch.float32)


def grown(table: Tensor, size: int) -> Tensor:
    """A table with a row for every id: new ones start as the mean of the old."""
    new = size - len(table)
    if new <= 0:
        return table
    return torch.cat([table, table.mean(0, keepdim=True).expand(new, *table.shape[1:])])
