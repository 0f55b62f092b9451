"""Sampling in rounds whose positions are known in advance,
each computed by a CUDA graph if possible.
"""

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


def reveal_in_rounds(
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
    device = state.z.device
    positions, read = to_device(rounds.positions, device), to_device(rounds.read, device)
    graph_rounds = None
    if isinstance(state.denoiser, StaticDenoiser) and state.task.simple:
        graph_rounds = GraphRounds(state, state.denoiser, rounds, t, uniforms)
    for number, (position_range, read_range) in enumerate(
        zip(pairwise(rounds.position_ends), pairwise(rounds.read_ends), strict=True)
    ):
        rows_read, now = rounds.read[slice(*read_range)], t[slice(*read_range)]
        if graph_rounds is None or not graph_rounds(number):
            rows, index, columns = positions[:, slice(*position_range)]
            some = None if len(rows_read) == len(state.z) else read[slice(*read_range)]
            state.write(state.predict((rows, columns), (index, columns), some, now), uniforms)
        state.count(rows_read, now)
        yield state.frame()


class Rounds(NamedTuple):
    """The positions that each round reveals, concatenated over the rounds, on the CPU."""

    positions: Int[Tensor, "3 positions"]  # row, its index among the rows read in the round, column
    read: Int[Tensor, "read"]  # the rows that the network reads in each round
    when: Float64[Tensor, "read"]  # `when` at the positions that the row reveals in the round
    position_ends: list[int]  # 0, then the end of each round in `positions`
    read_ends: list[int]  # 0, then the end of each round in `read`

    @classmethod
    def of(cls, when: Uniforms, is_open: Places) -> "Rounds":
        """Rounds that reveal the open positions of each row in descending order of `when`.

        Args:
            when: One number per position.
            is_open: True at the positions to reveal.

        Returns:
            The rounds.

        Example:
            Row 0 reveals columns 0 and 2 together, then 1; row 1 reveals columns 1,
            0 and 2 in turn.

            >>> when = torch.tensor([[0.9, 0.5, 0.9], [0.2, 0.7, 0.1]], dtype=torch.float64)
            >>> rounds = Rounds.of(when, torch.ones(2, 3, dtype=torch.bool))
            >>> rows, index, columns = rounds.positions.tolist()
            >>> assert rows == [0, 0, 1, 0, 1, 1]
            >>> assert columns == [0, 2, 1, 1, 0, 2]
            >>> assert index == [0, 0, 1, 0, 1, 0]  # of the row among those that the round reads
            >>> assert rounds.position_ends == [0, 3, 5, 6]  # rounds of 3, 2 and 1 positions
            >>> assert rounds.read.tolist() == [0, 1, 0, 1, 1]  # both rows, both, then row 1
            >>> assert rounds.read_ends == [0, 2, 4, 5]
        """
        rows, columns = (index.numpy() for index in is_open.nonzero(as_tuple=True))
        value = when.numpy()[rows, columns]
        order = np.lexsort((-value, rows))
        fresh = _changes(rows[order])  # in this order, True at the first position of a row
        rank = np.cumsum(fresh | _changes(value[order])) - 1
        first = rank[fresh]  # rank of each row's first round; ranks count through all rows
        number = np.empty_like(rank)  # the round of each position
        number[order] = rank - np.repeat(first, np.diff([*fresh.nonzero()[0], len(rank)]))
        order = np.lexsort((columns, rows, number))
        rows, columns, number, value = rows[order], columns[order], number[order], value[order]
        leads = _changes(number) | _changes(rows)  # True at the first position of a row in a round
        total = int(number.max(initial=-1)) + 1
        position_ends = np.searchsorted(number, np.arange(total + 1))
        read_ends = np.searchsorted(number[leads], np.arange(total + 1))
        index = np.cumsum(leads) - 1 - read_ends[number]
        return cls(
            torch.from_numpy(np.stack([rows, index, columns])),
            torch.from_numpy(rows[leads]),
            torch.from_numpy(value[leads]),
            position_ends.tolist(),
            read_ends.tolist(),
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
        rounds: Rounds,
        t: Float64[Tensor, "read"],
        uniforms: Float64[Tensor, "rows length"],
    ) -> None:
        self._state, self._denoiser = state, denoiser
        self._ranges = list(pairwise(rounds.position_ends))
        rows, index, columns = rounds.positions
        drawn = uniforms.cpu()[rows, columns].view(torch.int64)
        condition = denoiser.condition(t)
        level = torch.zeros_like(t) if condition is None else condition.double()
        device = state.z.device
        sizes = self._position_sizes(rounds.position_ends)
        self._positions, self._position_ranges = _padded(
            [index, columns, drawn], rounds.position_ends, sizes, device
        )
        counts = [last - first for first, last in pairwise(rounds.read_ends)]
        sizes = [_padded_rows(len(state.z), count) for count in counts]
        self._read, self._read_ranges = _padded(
            [rounds.read, level.view(torch.int64)], rounds.read_ends, sizes, device
        )
        self._flat = to_device(rows * state.z.shape[1] + columns, device)
        one = _Round(denoiser, state.task.token_sampler, condition is not None)
        self._round = denoiser.graph(("round", one.token_sampler), one)

    def _position_sizes(self, ends: list[int]) -> list[int]:
        """The number of positions that each round is padded to, a power of two.

        All rounds get the number of the largest round, which saves graphs. If that does not fit
        into a graph, each round gets its own number.
        """
        counts = [last - first for first, last in pairwise(ends)]
        most = doubled(max(counts, default=1))
        return [most if self._denoiser.fits(most) else doubled(count) for count in counts]

    def __call__(self, number: int) -> bool:
        """Computes a round. False, without effect, if its positions do not fit into a graph."""
        first, last = self._ranges[number]
        if not self._denoiser.fits(last - first):
            return False
        positions = self._positions[slice(*self._position_ranges[number])]
        read = self._read[slice(*self._read_ranges[number])]
        z = self._state.z
        sizes = [len(z), len(positions), len(read)]
        chosen = self._round([z, positions, read], sizes, last - first)
        flat = self._flat[first:last]
        z.view(-1).index_copy_(0, flat, chosen[:, 0].long())
        self._state.confidence.view(-1).index_copy_(0, flat, chosen[:, 1].float())
        return True


@dataclass(frozen=True, eq=False)
class _Round:
    """One round as a function of device tensors."""

    denoiser: StaticDenoiser
    token_sampler: TokenSampler
    timed: bool  # True if the network reads the noise level

    def __call__(
        self,
        z: Int[Tensor, "rows length"],
        positions: Int[Tensor, "positions 3"],
        read: Int[Tensor, "read 2"],
    ) -> Float[Tensor, "positions 2"]:
        index, columns, uniforms = positions.unbind(1)
        rows, level = read.unbind(1)
        condition = level.view(torch.float64).float() if self.timed else None
        log_probabilities = self.denoiser.log_x_theta(z[rows], condition, (index, columns))
        return self.token_sampler(log_probabilities, uniforms.view(torch.float64))


def _padded_rows(rows: int, read: int) -> int:
    """The number of rows to pad `read` rows to: 1/8, 1/4, 1/2 or all of the batch.

    Rows finish one by one. Without padding, each number of unfinished rows would need a graph.
    """
    parts = [-(-rows // part) for part in (8, 4, 2, 1)]
    return next(part for part in parts if part >= read and part >= min(2, rows))


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
