"""Packed batches: calls of different lengths in one forward pass, with separate attention.

On a CPU in float32 with one thread, a call gives the same bits alone and in a packed batch. From
`MIN_ROWS` rows on, the rounding of a matrix product does not depend on its number of rows.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from unmask.backbones.layers.attention import (
    AttentionInputs,
    Call,
)
from unmask.backbones.layers.rotary import Rotary, Rotation

MIN_ROWS = 16  # below this number of rows, MKL uses kernels with another rounding


def set_strict_mkl_rounding() -> None:
    """Makes the rounding of MKL independent of the number of rows, on a CPU without AVX-512.

    Call it before the first matrix product of the process.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


class PackedBatch(NamedTuple):
    """Attention inputs of several calls, whose tokens form one packed row."""

    parts: tuple[AttentionInputs, ...]
    shapes: tuple[tuple[int, int], ...]  # rows and length of each part
    row: Int[Tensor, "tokens"]  # original row of each token, numbered over all parts
    rotation: Rotation  # of all tokens

    def split(self, x: Float[Tensor, "1 tokens *width"]) -> list[Tensor]:
        """The parts of a packed tensor, each as [rows, length, …]."""
        parts = x[0].split([rows * length for rows, length in self.shapes])
        return [part.unflatten(0, shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def join(self, parts: Sequence[Tensor]) -> Float[Tensor, "1 tokens width"]:
        """The inverse of `split`: all parts in one row of tokens."""
        return torch.cat([part.flatten(0, 1) for part in parts])[None]

    def by_token(self, x: Float[Tensor, "rows values"]) -> Tensor:
        """Values of each row, repeated for its tokens."""
        return x[self.row][None]


class PackedForward:
    """The input of one packed forward pass.

    Calls of one length without positions and state form one part. A part of zeros pads the tokens
    to MIN_ROWS.
    """

    def __init__(self, calls: Sequence[Call], rotary: Rotary, causal: bool) -> None:
        self._calls = calls
        device = calls[0].inputs.device
        self._groups = _groups(calls)
        tokens = [torch.cat([calls[i].inputs for i in group]) for group in self._groups]
        padding = MIN_ROWS - sum(part.numel() for part in tokens)
        if padding > 0:
            tokens.append(tokens[0].new_zeros(1, padding))
        firsts = [calls[group[0]] for group in self._groups]
        firsts += [Call(tokens[-1])] * (padding > 0)
        parts = [call.attention(rotary, causal) for call in firsts]
        shapes = [(part.shape[0], part.shape[1]) for part in tokens]
        lengths = torch.tensor([length for rows, length in shapes for _ in range(rows)])
        row = torch.arange(len(lengths)).repeat_interleave(lengths).to(device)
        angles = [
            [table.repeat(rows, 1) for table in part.rotation]
            for part, (rows, _) in zip(parts, shapes, strict=True)
        ]
        rotation = Rotation(*map(torch.cat, zip(*angles, strict=True)))
        self.tokens = torch.cat([part.flatten() for part in tokens])[None]
        self.attention = PackedBatch(tuple(parts), tuple(shapes), row, rotation)
        self._rows = len(lengths)

    @property
    def condition(self) -> Float[Tensor, "rows"]:
        """The noise level of each row, then zeros for padding."""
        by_call = [self._calls[i].condition for group in self._groups for i in group]
        levels = torch.cat([level for level in by_call if level is not None])
        padding = max(MIN_ROWS, self._rows) - len(levels)
        return torch.cat([levels, levels.new_zeros(padding)])

    @cached_property
    def at(self) -> Int[Tensor, "tokens"] | None:
        """Indices of the tokens to compute, call by call, padded to MIN_ROWS; None for all tokens."""
        order = [i for group in self._groups for i in group]
        sizes = [self._calls[i].inputs.numel() for i in order]
        starts = dict(zip(order, accumulate(sizes, initial=0), strict=False))
        at = [call.at + starts[i] for i, call in enumerate(self._calls) if call.at is not None]
        return pad_rows(torch.cat(at)) if at else None

    def unpack(self, h: Float[Tensor, "*tokens width"]) -> list[Tensor]:
        """The features of each call."""
        if self.at is not None:
            counts = [len(call.at) for call in self._calls if call.at is not None]
            return list(h[: sum(counts)].split(counts))
        features: dict[int, Tensor] = {}
        for group, part in zip(self._groups, self.attention.split(h), strict=False):
            sizes = [len(self._calls[i].inputs) for i in group]
            features.update(zip(group, part.split(sizes), strict=True))
        return [features[i] for i in range(len(self._calls))]


def pad_rows(x: Shaped[Tensor, "rows *rest"]) -> Shaped[Tensor, "more *rest"]:
    """The rows, padded with zeros to MIN_ROWS rows."""
    padding = MIN_ROWS - len(x)
    return torch.cat([x, x.new_zeros(padding, *x.shape[1:])]) if padding > 0 else x


def _groups(calls: Sequence[Call]) -> list[list[int]]:
    """Indices of the calls in each part; calls of one length without positions and state share a part."""
    plain: dict[int, list[int]] = {}
    others: list[list[int]] = []
    for i, call in enumerate(calls):
        if call.positions is None and call.state is None:
            plain.setdefault(call.inputs.shape[1], []).append(i)
        else:
            others.append([i])
    return [*plain.values(), *others]
