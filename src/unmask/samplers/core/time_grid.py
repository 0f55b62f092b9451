"""Time grids of samplers: the times of the steps, from 1 down to 0."""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float64
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.registry import Registry

MOST_STEPS = 1_000_000


def check_steps(steps: int) -> None:
    """Raises an error if the number of steps is out of range."""
    if steps < 1:
        raise UnmaskError(f"steps must be 1 or more, not {steps}")
    if steps > MOST_STEPS:
        raise UnmaskError(
            f"steps must be {MOST_STEPS} or less, not {steps}: "
            "for continuous time choose the sampler first_hitting"
        )


class Grid(ABC):
    """A distribution of the steps over time."""

    @abstractmethod
    def times(self, share: Float64[Tensor, "times"]) -> Float64[Tensor, "times"]:
        """The time after each share of the steps, from 1 at share 0 down to 0 at share 1."""


GRIDS: Registry[Grid] = Registry("grid")


@GRIDS.register("uniform")
@dataclass(frozen=True)
class Uniform(Grid):
    """Steps of equal length."""

    def times(self, share: Float64[Tensor, "times"]) -> Float64[Tensor, "times"]:
        return 1 - share


@GRIDS.register("cosine")
@dataclass(frozen=True)
class Cosine(Grid):
    """Short steps at many masks, long steps at few: t = cos(pi i / 2T)."""

    def times(self, share: Float64[Tensor, "times"]) -> Float64[Tensor, "times"]:
        return torch.cos(share * math.pi / 2)


def given_times(grid: str) -> list[float] | None:
    """The times of a grid that lists them, such as "1, 0.6, 0.2, 0".

    Args:
        grid: A name of a grid, or times.

    Returns:
        The times; None for a name.

    Example:
        >>> given_times("1, 0.5, 0"), given_times("cosine")
        ([1.0, 0.5, 0.0], None)
    """
    if not re.match(r"[\s\d.]", grid):
        return None
    try:
        times = [float(time) for time in re.split(r"[,/\s]+", grid.strip())]
    except ValueError:
        raise UnmaskError(
            f"grid {grid[:40]!r} is no list of times: write times such as 1,0.5,0"
        ) from None
    descending = all(late > early for late, early in pairwise(times))
    if len(times) < 2 or not (times[0] == 1 and times[-1] == 0 and descending):
        raise UnmaskError(
            f"the times of grid {grid[:40]!r} must fall from 1 to 0: write times such as 1,0.5,0"
        )
    return times


def check_grid(grid: str, steps: int) -> None:
    """Raises an error if a grid is unknown or has another number of steps."""
    check_steps(steps)
    times = given_times(grid)
    if times is None:
        GRIDS[grid]
    elif len(times) != steps + 1:
        raise UnmaskError(
            f"the grid has {len(times) - 1} steps, and steps is {steps}: set steps {len(times) - 1}"
        )


def grid_times(grid: str, steps: int) -> Float64[Tensor, "times"]:
    """The times of a grid.

    Args:
        grid: A name of a grid, or times such as "1,0.5,0".
        steps: Number of steps.

    Returns:
        The steps + 1 times, from 1 down to 0.

    Example:
        >>> grid_times("uniform", 4).tolist()
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    times = given_times(grid)
    if times is not None:
        return torch.tensor(times, dtype=torch.float64)
    share = torch.arange(steps + 1, dtype=torch.float64) / steps
    computed = GRIDS.build(grid).times(share)
    computed[0], computed[-1] = 1.0, 0.0
    return computed
