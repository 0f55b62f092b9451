"""Calls of different lengths in one pass: their products are shared, and each attends to itself alone.

Alone or in company a call gives the same bits, on a CPU in float32 with one thread: how a product
rounds depends neither on how many rows it has nor on what they hold, from `LEAST` rows on.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from unmask.backbones.layers.attention import AttentionInputs, Rotation, attention_inputs
from unmask.backbones.layers.state import State
from unmask.shapes import Tokens


class Call(NamedTuple):
    """What is asked of `features`, at all tokens or some, by somebody who may have company."""

    tokens: Tokens
    condition: Float[Tensor, "rows"] | None = None
    positions: Int[Tensor, "length"] | None = None
    state: State | None = None
    at: Int[Tensor, "tokens"] | None = None


LEAST = 16  # rows below which MKL multiplies by kernels that round otherwise


def round_alike() -> None:
    """Makes a CPU without AVX-512 round products as one with it, whatever their rows: before the first one."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


class PackedBatch(NamedTuple):
    """Calls one behind the other in a single row of tokens."""

    parts: tuple[AttentionInputs, ...]
    shapes: tuple[tuple[int, int], ...]  # rows and length of each
    row: Int[Tensor, "tokens"]  # of each token, counted through all parts
    rotation: Rotation  # of all tokens at once

    def split(self, x: Float[Tensor, "1 tokens *width"]) -> list[Tensor]:
        """Each part in its own shape."""
        apart = x[0].split([rows * length for rows, length in self.shapes])
        return [part.unflatten(0, shape) for part, shape in zip(apart, self.shapes, strict=True)]

    def join(self, parts: Sequence[Tensor]) -> Float[Tensor, "1 tokens width"]:
        """The parts one behind the other again."""
        return torch.cat([part.flatten(0, 1) for part in parts])[None]

    def by_token(self, x: Float[Tensor, "rows values"]) -> Tensor:
        """What each row has, for all of its tokens."""
        return x[self.row][None]


class PackedForward:
    """Calls as one row of tokens: plain ones of one length are one part, and zeros fill up to LEAST."""

    def __init__(self, calls: Sequence[Call], head_width: int, causal: bool) -> None:
        self._calls = calls
        device = calls[0].tokens.device
        self._groups = _groups(calls)
        tokens = [torch.cat([calls[i].tokens for i in group]) for group in self._groups]
        missing = LEAST - sum(part.numel() for part in tokens)
        if missing > 0:
            tokens.append(tokens[0].new_zeros(1, missing))
        firsts = [calls[group[0]] for group in self._groups]
        places = [(call.positions, call.state) for call in firsts]
        places += [(None, None)] * (missing > 0)
        parts = [
            attention_inputs(
                part.shape[1], head_width, device, None, positions, None, state, causal
            )
            for part, (positions, state) in zip(tokens, places, strict=True)
        ]
        shapes = [(part.shape[0], part.shape[1]) for part in tokens]
        lengths = torch.tensor([length for rows, length in shapes for _ in range(rows)])
        row = torch.arange(len(lengths)).repeat_interleave(lengths).to(device)
        angles = [
            [table.repeat(rows, 1) for table in part.rotation]
            for part, (rows, _) in zip(parts, shapes, strict=True)
        ]
        rotation = Rotation(*map(torch.cat, zip(*angles, strict=True)))
        self.tokens = torch.cat([part.flatten() for part in tokens])[None]
        self.seen = PackedBatch(tuple(parts), tuple(shapes), row, rotation)
        self._rows = len(lengths)

    @property
    def condition(self) -> Float[Tensor, "rows"]:
        """The condition of each row; zeros for those that only fill up."""
        asked = [self._calls[i].condition for group in self._groups for i in group]
        known = torch.cat([part for part in asked if part is not None])
        missing = max(LEAST, self._rows) - len(known)
        return torch.cat([known, known.new_zeros(missing)])

    @cached_property
    def at(self) -> Int[Tensor, "places"] | None:
        """The tokens that are wanted, call by call, and others up to LEAST; None if all are."""
        order = [i for group in self._groups for i in group]
        sizes = [self._calls[i].tokens.numel() for i in order]
        starts = dict(zip(order, accumulate(sizes, initial=0), strict=False))
        at = [call.at + starts[i] for i, call in enumerate(self._calls) if call.at is not None]
        return filled(torch.cat(at)) if at else None

    def apart(self, h: Float[Tensor, "*tokens width"]) -> list[Tensor]:
        """The features of each call."""
        if self.at is not None:
            counts = [len(call.at) for call in self._calls if call.at is not None]
            return list(h[: sum(counts)].split(counts))
        found: dict[int, Tensor] = {}
        for group, part in zip(self._groups, self.seen.split(h), strict=False):
            sizes = [len(self._calls[i].tokens) for i in group]
            found.update(zip(group, part.split(sizes), strict=True))
        return [found[i] for i in range(len(self._calls))]


def filled(x: Shaped[Tensor, "rows *rest"]) -> Shaped[Tensor, "more *rest"]:
    """With rows of zeros up to LEAST."""
    missing = LEAST - len(x)
    return torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing > 0 else x


def _groups(calls: Sequence[Call]) -> list[list[int]]:
    """Calls that attend alike go as one: those of one length without positions or a state."""
    plain: dict[int, list[int]] = {}
    others: list[list[int]] = []
    for i, call in enumerate(calls):
        if call.positions is None and call.state is None:
            plain.setdefault(call.tokens.shape[1], []).append(i)
        else:
            others.append([i])
    return [*plain.values(), *others]
