"""Sampling in rounds whose positions are known in advance, each computed by a CUDA graph if possible."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from unmask.diffusion.denoiser import StaticDenoiser
from unmask.runtime.cuda_graphs import doubled
from unmask.runtime.device import to_device
from unmask.samplers.core.canvas import Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import TokenSampler
from unmask.shapes import Places, Times, Uniforms


def in_turn(
    state: SamplerState, when: Uniforms, clock: Callable[[Times], Times]
) -> Iterator[Frame]:
    """Reveals the open positions of each row in descending order of `when`.

    Positions of a row with equal `when` share a round. A round continues every unfinished row, and
    the network reads each row at its own time. So a row depends on its own seed only. The inputs of
    all rounds are sent to the device before the first round.

    Args:
        state: State to write the tokens to.
        when: One number per position, on the CPU.
        clock: Maps numbers of `when` to times t.

    Yields:
        A frame after each round.
    """
    uniforms = state.uniforms("token")
    rounds = Rounds.of(when, state.canvas.open.cpu())
    t = clock(rounds.when).detach()
    places, read = to_device(rounds.places, state.z.device), to_device(rounds.read, state.z.device)
    turns = None
    if isinstance(state.denoiser, StaticDenoiser) and state.task.simple:
        ends = rounds.places_end, rounds.read_end
        turns = GraphRounds(state, state.denoiser, rounds.places, rounds.read, ends, t, uniforms)
    for number, (at, asked) in enumerate(
        zip(pairwise(rounds.places_end), pairwise(rounds.read_end), strict=True)
    ):
        asked_rows, now = rounds.read[slice(*asked)], t[slice(*asked)]
        if turns is None or not turns(number):
            rows, index, columns = places[:, slice(*at)]
            among = None if len(asked_rows) == len(state.z) else read[slice(*asked)]
            state.write(state.ask((rows, columns), (index, columns), among, now), uniforms)
        state.count(asked_rows, now)
        yield state.frame()


class Rounds(NamedTuple):
    """The positions that each round reveals, concatenated over the rounds, on the CPU."""

    places: Int[Tensor, "3 places"]  # row, its index among the rows read in the round, column
    read: Int[Tensor, "asked"]  # the rows that the network reads in each round
    when: Float64[Tensor, "asked"]  # the number in `when` of the positions that the row reveals
    places_end: list[int]  # 0, then the end of each round in `places`
    read_end: list[int]  # 0, then the end of each round in `read`

    @classmethod
    def of(cls, when: Uniforms, is_open: Places) -> "Rounds":
        """Rounds that reveal the open positions of each row in descending order of `when`."""
        rows, columns = (index.numpy() for index in is_open.nonzero(as_tuple=True))
        value = when.numpy()[rows, columns]
        order = np.lexsort((-value, rows))
        fresh = _changes(rows[order])  # True at the first position of a row
        rank = np.cumsum(fresh | _changes(value[order])) - 1
        first = rank[fresh]  # rank of each row's first round; ranks count through all rows
        turn = np.empty_like(rank)
        turn[order] = rank - np.repeat(first, np.diff([*fresh.nonzero()[0], len(rank)]))
        order = np.lexsort((columns, rows, turn))
        rows, columns, turn, value = rows[order], columns[order], turn[order], value[order]
        leads = _changes(turn) | _changes(rows)  # True at the first position of a row in a round
        total = int(turn.max(initial=-1)) + 1
        places_end = np.searchsorted(turn, np.arange(total + 1))
        read_end = np.searchsorted(turn[leads], np.arange(total + 1))
        index = np.cumsum(leads) - 1 - read_end[turn]
        return cls(
            torch.from_numpy(np.stack([rows, index, columns])),
            torch.from_numpy(rows[leads]),
            torch.from_numpy(value[leads]),
            places_end.tolist(),
            read_end.tolist(),
        )


def _changes(values: np.ndarray) -> np.ndarray:
    """True at the first value and at each value that differs from the one before."""
    return np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])


class GraphRounds:
    """Computes each round by one CUDA graph, which calls the network and draws the tokens.

    The inputs of all rounds are packed and sent to the device first. A position is packed as
    (index of its row among the rows read, column, uniform), and a row read as (row, condition).
    Each input shape needs its own graph, so zeros pad the positions and the rows of a round to one
    of a few sizes. The output for the padding is dropped.
    """

    def __init__(
        self,
        state: SamplerState,
        denoiser: StaticDenoiser,
        places: Int[Tensor, "3 places"],
        read: Int[Tensor, "asked"],
        ends: tuple[list[int], list[int]],
        t: Float64[Tensor, "asked"],
        uniforms: Float64[Tensor, "rows length"],
    ) -> None:
        self._state, self._denoiser = state, denoiser
        self._ends = list(zip(pairwise(ends[0]), pairwise(ends[1]), strict=True))
        rows, index, columns = places
        chance = uniforms.cpu()[rows, columns].view(torch.int64)
        condition = denoiser.condition(t)
        level = torch.zeros_like(t) if condition is None else condition.double()
        device = state.z.device
        self._places, self._place_ends = _padded(
            [index, columns, chance], ends[0], self._place_sizes(ends[0]), device
        )
        asked = [_some_of(len(state.z), last - first) for first, last in pairwise(ends[1])]
        self._read, self._read_ends = _padded(
            [read, level.view(torch.int64)], ends[1], asked, device
        )
        self._flat = to_device(rows * state.z.shape[1] + columns, device)
        turn = _Turn(denoiser, state.task.token_sampler, condition is not None)
        self._turn = denoiser.graph(("turn", turn.token_sampler), turn)

    def _place_sizes(self, ends: list[int]) -> list[int]:
        """The number of positions that each round is padded to, a power of two.

        All rounds get the number of the largest round, which saves graphs. If that does not fit
        into a graph, each round gets its own number.
        """
        counts = [last - first for first, last in pairwise(ends)]
        most = doubled(max(counts, default=1))
        return [most if self._denoiser.fits(most) else doubled(count) for count in counts]

    def __call__(self, number: int) -> bool:
        """Computes a round. False, without effect, if its positions do not fit into a graph."""
        (first, last), _ = self._ends[number]
        if not self._denoiser.fits(last - first):
            return False
        places = self._places[slice(*self._place_ends[number])]
        read = self._read[slice(*self._read_ends[number])]
        z = self._state.z
        sizes = [len(z), len(places), len(read)]
        chosen = self._turn([z, places, read], sizes, last - first)
        flat = self._flat[first:last]
        z.view(-1).index_copy_(0, flat, chosen[:, 0].long())
        self._state.confidence.view(-1).index_copy_(0, flat, chosen[:, 1].float())
        return True


@dataclass(frozen=True, eq=False)
class _Turn:
    """One round as a function of device tensors."""

    denoiser: StaticDenoiser
    token_sampler: TokenSampler
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
        log_probabilities = self.denoiser.log_x_theta(z[rows], condition, (index, columns))
        return self.token_sampler(log_probabilities, chance.view(torch.float64))


def _some_of(rows: int, asked: int) -> int:
    """The number of rows to pad `asked` rows to: 1/8, 1/4, 1/2 or all of the batch.

    Rows finish one by one. Without padding, each number of unfinished rows would need a graph.
    """
    parts = [-(-rows // part) for part in (8, 4, 2, 1)]
    return next(part for part in parts if part >= asked and part >= min(2, rows))


def _padded(
    columns: list[Tensor], ends: list[int], sizes: list[int], device: torch.device
) -> tuple[Tensor, list[tuple[int, int]]]:
    """Stacks columns, pads each round with zeros to its size, and sends them to the device.

    Returns the packed tensor and the range of each round in it.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    packed = np.zeros((int(starts[-1]), len(columns)), np.int64)
    where = np.arange(ends[-1]) + np.repeat(starts[:-1] - ends[:-1], np.diff(ends))
    packed[where] = torch.stack(columns, 1).numpy()
    return to_device(torch.from_numpy(packed), device), list(pairwise(starts.tolist()))
