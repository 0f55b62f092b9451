"""Rounds that are known beforehand, each of them one function of tensors on the device."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from unmask.runtime.cuda_graphs import doubled
from unmask.runtime.device import to_device
from unmask.samplers.base import Manner, Static
from unmask.samplers.draft import Draft


class Turns:
    """Looks and draws in one go: what a round needs is packed and sent before the first one.

    A place is packed as (its row among those read, column, uniform), a row that is read as (row,
    condition); zeros pad them up to few sizes, and what comes of those is not used.
    """

    def __init__(
        self,
        draft: Draft,
        denoise: Static,
        places: Int[Tensor, "3 places"],
        read: Int[Tensor, "asked"],
        ends: tuple[list[int], list[int]],
        t: Float64[Tensor, "asked"],
        uniforms: Float64[Tensor, "rows length"],
    ) -> None:
        self._draft, self._denoise = draft, denoise
        self._ends = list(zip(pairwise(ends[0]), pairwise(ends[1]), strict=True))
        rows, index, columns = places
        chance = uniforms.cpu()[rows, columns].view(torch.int64)
        condition = denoise.condition(t)
        level = torch.zeros_like(t) if condition is None else condition.double()
        device = draft.z.device
        self._places, self._place_ends = _padded(
            [index, columns, chance], ends[0], self._place_sizes(ends[0]), device
        )
        asked = [_some_of(len(draft.z), last - first) for first, last in pairwise(ends[1])]
        self._read, self._read_ends = _padded(
            [read, level.view(torch.int64)], ends[1], asked, device
        )
        self._flat = to_device(rows * draft.z.shape[1] + columns, device)
        turn = _Turn(denoise, draft.plan.manner, condition is not None)
        self._turn = denoise.replay(("turn", turn.manner), turn)

    def _place_sizes(self, ends: list[int]) -> list[int]:
        """The same for all rounds, if the largest fits: then only rows that are done change the shape."""
        counts = [last - first for first, last in pairwise(ends)]
        most = doubled(max(counts, default=1))
        return [most if self._denoise.fits(most) else doubled(count) for count in counts]

    def __call__(self, number: int) -> bool:
        """Takes a round, unless it has more places than fit."""
        (first, last), _ = self._ends[number]
        if not self._denoise.fits(last - first):
            return False
        places = self._places[slice(*self._place_ends[number])]
        read = self._read[slice(*self._read_ends[number])]
        z = self._draft.z
        sizes = [len(z), len(places), len(read)]
        chosen = self._turn([z, places, read], sizes, last - first)
        flat = self._flat[first:last]
        z.view(-1).index_copy_(0, flat, chosen[:, 0].long())
        self._draft.confidence.view(-1).index_copy_(0, flat, chosen[:, 1].float())
        return True


@dataclass(frozen=True, eq=False)
class _Turn:
    """One round as a function of tensors."""

    denoise: Static
    manner: Manner
    timed: bool

    def __call__(
        self,
        z: Int[Tensor, "rows length"],
        places: Int[Tensor, "places 3"],
        read: Int[Tensor, "read 2"],
    ) -> Float[Tensor, "places 2"]:
        index, columns, chance = places.unbind(1)
        rows, level = read.unbind(1)
        condition = level.view(torch.float64).float() if self.timed else None
        log_probabilities = self.denoise.answer(z[rows], condition, (index, columns))
        return self.manner(log_probabilities, chance.view(torch.float64))


def _some_of(rows: int, asked: int) -> int:
    """All rows, or a half, a quarter or an eighth of them: rows leave one by one, and each size costs a graph."""
    parts = [-(-rows // part) for part in (8, 4, 2, 1)]
    return next(part for part in parts if part >= asked and part >= min(2, rows))


def _padded(
    columns: list[Tensor], ends: list[int], sizes: list[int], device: torch.device
) -> tuple[Tensor, list[tuple[int, int]]]:
    """Columns side by side, the stretch between two ends padded with zeros, and where it then lies."""
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    packed = np.zeros((int(starts[-1]), len(columns)), np.int64)
    where = np.arange(ends[-1]) + np.repeat(starts[:-1] - ends[:-1], np.diff(ends))
    packed[where] = torch.stack(columns, 1).numpy()
    return to_device(torch.from_numpy(packed), device), list(pairwise(starts.tolist()))
