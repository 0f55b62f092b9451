"""Time samplers: unbiased ways to draw times and masks for an estimate of the bound."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from unmask.diffusion.categorical import binomial_quantile
from unmask.diffusion.process import masked_tokens
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError
from unmask.options import Checked, option
from unmask.randomness import RowStream
from unmask.registry import Registry

N = TypeVar("N", bound="RowNoise")
PerRow = Float64[Tensor, "rows"]
Tokens = Bool[Tensor, "rows length"]


@dataclass(frozen=True)
class RowNoise:
    """Randomness of a loss: tensors with one entry per row, such as the time t.

    A method with other noise, such as Gaussian noise, extends it.
    """

    by_token: ClassVar[tuple[str, ...]] = ()  # names of the tensors [rows, length, …]

    t: PerRow

    @classmethod
    def joined(cls: type[N], parts: Sequence[N]) -> N:
        """The noise of a batch that concatenates the rows of `parts`."""
        first = vars(parts[0])
        tensors = [name for name, value in first.items() if isinstance(value, Tensor)]
        joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in tensors}
        return replace(parts[0], **joined)

    def rows(self: N, chosen: Int64[Tensor, "chosen"]) -> N:
        """The noise of the chosen rows."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **{name: value[chosen] for name, value in tensors.items()})

    def columns(self: N, width: int) -> N:
        """The noise of the first `width` tokens of each row."""
        return replace(self, **{name: getattr(self, name)[:, :width] for name in self.by_token})


@dataclass(frozen=True)
class Noise(RowNoise):
    """One draw of (t, z_t) per row, with importance weights.

    The mean of f over uniform t is E[importance * f(t, masked)]. The drawn times may leave out
    both ends of [0, 1]. `unstarted` is alpha at the largest time, for the prior term. `unfinished`
    is True at tokens that are still masked at `t_min`, for the reconstruction term.
    """

    by_token: ClassVar[tuple[str, ...]] = ("masked", "unfinished")

    masked: Tokens
    importance: PerRow
    unstarted: float
    unfinished: Tokens
    t_min: float = 0.0


class TimeSampler(ABC):
    """Draws (t, z_t) such that the estimate of the bound is unbiased."""

    @abstractmethod
    def draw(self, stream: RowStream, valid: Tokens, schedule: Schedule, steps: int = 0) -> Noise:
        """Times and masks for the rows of a stream.

        Args:
            stream: Randomness of the rows.
            valid: True at tokens that may be masked.
            schedule: Noise schedule.
            steps: T of a T-step bound, with t in {1/T, ..., 1}; 0 is continuous time.

        Returns:
            The noise of each row.
        """


TIME_SAMPLERS: Registry[TimeSampler] = Registry("time sampler")
MOST_STEPS = 1_000_000  # most steps whose times are in memory at once


class TimeFirst(TimeSampler):
    """Draws times in (0, 1], then masks each token with probability 1 - alpha(t)."""

    t_min: float = 0.0

    @abstractmethod
    def times(self, u: PerRow, stream: RowStream) -> tuple[PerRow, PerRow]:
        """Times in (0, 1] from uniforms, and their importance: 1 / density."""

    def row_times(self, stream: RowStream, steps: int = 0) -> tuple[PerRow, PerRow]:
        """Times of the rows of a stream, and their importance.

        Args:
            stream: Randomness of the rows.
            steps: T of a T-step bound, with t in {1/T, ..., 1}; 0 is continuous time,
                from t_min on.
        """
        t, importance = self.times(1 - stream.uniform("time", 1)[:, 0], stream)
        if steps:
            return torch.ceil(t * steps) / steps, importance
        return self.t_min + (1 - self.t_min) * t, importance * (1 - self.t_min)

    @torch.no_grad()
    def draw(self, stream: RowStream, valid: Tokens, schedule: Schedule, steps: int = 0) -> Noise:
        t, importance = self.row_times(stream, steps)
        t_min = 0.0 if steps else self.t_min
        u = stream.uniform("mask", valid.shape[1])
        first, last = schedule.alpha(torch.tensor([1.0, t_min], dtype=torch.float64))
        return Noise(
            t=t,
            masked=masked_tokens(u, schedule.alpha(t), valid),
            importance=importance,
            unstarted=float(first),
            unfinished=masked_tokens(u, last.expand(len(t)), valid),
            t_min=t_min,
        )


@dataclass(frozen=True)
class _Cut(Checked, TimeFirst):
    """Times of at least t_min. Smaller times have weights of 1/t,
    which add variance to the gradient.
    """

    t_min: float = option(1e-3, ge=0, lt=1)


@TIME_SAMPLERS.register("uniform")
@dataclass(frozen=True)
class Uniform(_Cut):
    """Independent uniform times."""

    def times(self, u: PerRow, stream: RowStream) -> tuple[PerRow, PerRow]:
        return u, torch.ones_like(u)


@TIME_SAMPLERS.register("stratified")
@dataclass(frozen=True)
class Stratified(_Cut):
    """One time in each of as many equal slices of (0, 1] as rows:
    the paper's low-discrepancy sampler.
    """

    def times(self, u: PerRow, stream: RowStream) -> tuple[PerRow, PerRow]:
        return (stream.strata() + u) / stream.total, torch.ones_like(u)


@TIME_SAMPLERS.register("importance")
@dataclass(frozen=True)
class Importance(TimeFirst):
    """Stratified times with a mixture density of 1/(2 sqrt t), 1 and 2t.

    It draws more times where the loss varies most. Near t = 0 the rare masked tokens weigh 1/t, so
    the variance under uniform times diverges. Near t = 1 tokens are hardest to predict. Without
    strata the density would raise the variance where the loss is constant in t. Then no density
    would be better than uniform times for every network.
    """

    early: float = 0.3
    late: float = 0.2

    def __post_init__(self) -> None:
        if self.early < 0 or self.late < 0 or self.early + self.late > 1:
            raise UnmaskError(
                f"early {self.early} and late {self.late} must be 0 or more, with a sum of at most 1"
            )

    def times(self, u: PerRow, stream: RowStream) -> tuple[PerRow, PerRow]:
        u = (stream.strata() + u) / stream.total
        flat = 1 - self.early - self.late
        # inverts the distribution function early sqrt(t) + flat t + late t^2 by bisection
        low, high = torch.zeros_like(u), torch.ones_like(u)
        for _ in range(60):
            t = (low + high) / 2
            below = self.early * t.sqrt() + flat * t + self.late * t**2 < u
            low, high = torch.where(below, t, low), torch.where(below, high, t)
        density = self.early / (2 * high.sqrt()) + flat + 2 * self.late * high
        return high, 1 / density


@TIME_SAMPLERS.register("fixed_count")
@dataclass(frozen=True)
class FixedCount(TimeSampler):
    """Masks exactly k tokens, with k stratified over 1..length, and covers all times.

    The number of masks adds no variance. For a T-step bound, a step is drawn
    with the probability that it reveals a given token. The number of other masked tokens is then
    binomial.
    """

    @torch.no_grad()
    def draw(self, stream: RowStream, valid: Tokens, schedule: Schedule, steps: int = 0) -> Noise:
        lengths = valid.sum(1).clamp(min=1)  # a row may hold padding only
        u = (stream.strata() + stream.uniform("time", 1)[:, 0]) / stream.total
        if steps:
            t, k, importance = self._in_steps(u, lengths, schedule, steps)
        else:
            k = 1 + (lengths * u).floor().long().clamp(max=lengths - 1)
        scores = stream.uniform("mask", valid.shape[1])
        # the mask ratio at which exactly k tokens are masked: the k-th smallest uniform
        ratio = scores.masked_fill(~valid, 2.0).sort(1).values.gather(1, k[:, None] - 1)[:, 0]
        masked = (scores <= ratio[:, None]) & valid
        if steps:
            first, last = schedule.alpha(torch.tensor([1.0, 0.0], dtype=torch.float64))
            unfinished = masked_tokens(scores, last.expand(len(u)), valid)
            return Noise(t, masked, importance, float(first), unfinished)
        t = schedule.inverse(1 - ratio)
        # the density of (r, tokens) is L r / k times that of a uniform r, and dr = -alpha' dt
        importance = lengths / k * (1 - schedule.alpha(t)) / -schedule.alpha_prime(t)
        return Noise(t, masked, importance, 0.0, torch.zeros_like(masked))

    def _in_steps(
        self, u: PerRow, lengths: Int64[Tensor, "rows"], schedule: Schedule, steps: int
    ) -> tuple[PerRow, Int64[Tensor, "rows"], PerRow]:
        """Times, counts and importance; a step reveals a token with probability
        alpha_s - alpha_t.
        """
        if steps > MOST_STEPS:
            raise UnmaskError(
                f"fixed_count takes {MOST_STEPS:,} steps at most, not {steps:,}: "
                "set steps to 0 for continuous time"
            )
        grid = torch.arange(steps + 1, dtype=torch.float64) / steps
        alpha = schedule.alpha(grid)
        # share of the reveals in the steps up to each time, counted from t = 0
        revealed = (alpha[0] - alpha) / (alpha[0] - alpha[-1])
        u = u.clamp(max=1 - 2**-53)
        step = torch.searchsorted(revealed, u, right=True)
        p_step = revealed[step] - revealed[step - 1]
        r = 1 - alpha[step]
        k = 1 + binomial_quantile((u - revealed[step - 1]) / p_step, lengths - 1, r)
        # the density of (step, tokens) is T p_step k / (L r) times that of a uniform step
        return grid[step], k, lengths * r / k / (steps * p_step)
