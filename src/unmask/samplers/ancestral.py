"""Sampling the reverse process, position first: when a token is revealed does not depend on the network."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from unmask.diffusion.schedule import Schedule
from unmask.runtime.device import to_device
from unmask.samplers.base import (
    SAMPLERS,
    Canvas,
    Denoise,
    Frame,
    Places,
    Plan,
    Sampler,
    Static,
    Times,
    Uniforms,
)
from unmask.samplers.draft import Draft
from unmask.samplers.grid import check_grid, grid_times
from unmask.samplers.turns import Turns


@SAMPLERS.register("ancestral")
@dataclass(frozen=True)
class Ancestral(Sampler):
    """The paper's T-step reverse process, exactly, without a network call for steps that reveal nothing."""

    exact = True
    steps: int = 128
    grid: str = "uniform"  # or cosine, or times such as 1,0.5,0

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)

    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """Draws every token's step first; then each row visits only the steps in which it reveals something."""
        draft = Draft(denoise, canvas, plan)
        times = grid_times(self.grid, self.steps)
        step = reveal_steps(draft.uniforms("reveal").cpu(), plan.schedule, times)
        return in_turn(draft, times[step], lambda t: t)


@SAMPLERS.register("first_hitting")
@dataclass(frozen=True)
class FirstHitting(Sampler):
    """The reverse process in continuous time, one token a call, each at the time it is first revealed."""

    exact = True

    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """A token is still masked at t with probability (1 - alpha_t) / (1 - alpha_1): u, solved for t."""
        draft = Draft(denoise, canvas, plan)
        end = torch.ones(1, dtype=torch.float64)
        masked_at_the_end = 1 - plan.schedule.alpha(end).detach()
        u = draft.uniforms("reveal").cpu()
        return in_turn(draft, u, lambda u: plan.schedule.inverse(1 - u * masked_at_the_end))


def in_turn(draft: Draft, when: Uniforms, clock: Callable[[Times], Times]) -> Iterator[Frame]:
    """Reveals the tokens of each row from the largest `when` down, equal ones together, at time clock(when).

    Rows go through their own times side by side: what a row becomes depends on its seed alone, and the
    batch is done after as many rounds as its busiest row needs. All rounds are known, and on the
    device, before the first one.
    """
    uniforms = draft.uniforms("token")
    rounds = Rounds.of(when, draft.canvas.open.cpu())
    t = clock(rounds.when).detach()
    places, read = to_device(rounds.places, draft.z.device), to_device(rounds.read, draft.z.device)
    turns = None
    if isinstance(draft.denoise, Static) and draft.plan.simple:
        ends = rounds.places_end, rounds.read_end
        turns = Turns(draft, draft.denoise, rounds.places, rounds.read, ends, t, uniforms)
    for number, (at, asked) in enumerate(
        zip(pairwise(rounds.places_end), pairwise(rounds.read_end), strict=True)
    ):
        asked_rows, now = rounds.read[slice(*asked)], t[slice(*asked)]
        if turns is None or not turns(number):
            rows, index, columns = places[:, slice(*at)]
            among = None if len(asked_rows) == len(draft.z) else read[slice(*asked)]
            draft.write(draft.ask((rows, columns), (index, columns), among, now), uniforms)
        draft.count(asked_rows, now)
        yield draft.frame()


class Rounds(NamedTuple):
    """Which places are revealed in which round, one round after the other; on the CPU."""

    places: Int[Tensor, "3 places"]  # row, its index among those read in the round, column
    read: Int[Tensor, "asked"]  # the rows read in each round
    when: Float64[Tensor, "asked"]  # of those rows
    places_end: list[int]  # where each round ends among the places, 0 first
    read_end: list[int]  # and among the rows read

    @classmethod
    def of(cls, when: Uniforms, is_open: Places) -> "Rounds":
        """Each row reveals its open places from the largest `when` down, equal ones in one round."""
        rows, columns = (index.numpy() for index in is_open.nonzero(as_tuple=True))
        value = when.numpy()[rows, columns]
        order = np.lexsort((-value, rows))
        fresh = _changes(rows[order])  # where a row begins
        rank = np.cumsum(fresh | _changes(value[order])) - 1
        first = rank[fresh]  # the rank of each row's first round
        turn = np.empty_like(rank)
        turn[order] = rank - np.repeat(first, np.diff([*fresh.nonzero()[0], len(rank)]))
        order = np.lexsort((columns, rows, turn))
        rows, columns, turn, value = rows[order], columns[order], turn[order], value[order]
        leads = _changes(turn) | _changes(rows)  # where a row begins in a round
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
    """Where a value is not the one before."""
    return np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])


def reveal_steps(
    u: Float64[Tensor, "rows length"], schedule: Schedule, grid: Float64[Tensor, "times"]
) -> Int[Tensor, "rows length"]:
    """The step (from grid[i] to grid[i + 1]) in which each token of the reverse process is revealed.

    A token that is masked at t survives to s with probability (1 - alpha_s) / (1 - alpha_t), so it is
    revealed by the end of step i with probability 1 - (1 - alpha_s) / (1 - alpha_1); the last step
    reveals all that is left.
    """
    alpha = schedule.alpha(grid).detach()
    revealed = 1 - (1 - alpha[1:]) / (1 - alpha[0])
    revealed[-1] = 1.0
    return torch.searchsorted(revealed, u, right=True)
