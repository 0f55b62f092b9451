"""Ways to measure a likelihood: each says what it is of the true value, and of which process or order."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from unmask.diffusion.schedule import Schedule
from unmask.diffusion.time_sampler import (
    TIME_SAMPLERS,
    FixedCount,
    Importance,
    Noise,
    Stratified,
    TimeSampler,
    Uniform,
)
from unmask.errors import UnmaskError, unknown
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import METHODS, Method, targets
from unmask.randomness import RowStream
from unmask.shapes import Tokens, Valid

ByRow = Float64[Tensor, "rows"]
_COLUMNS = 16  # widths are multiples of it


@dataclass(frozen=True)
class Batch:
    """Rows that are measured together; `x` is on the device.

    Tokens that are `given` cost nothing: the others are measured given them. Figures are per token
    that is `counted`, all of the others unless told; a bound may have to pay for more.
    """

    x: Tokens
    valid: Valid
    given: Valid | None = None
    counted: Valid | None = None

    @property
    def wanted(self) -> Valid:
        """The tokens that cost something."""
        return targets(self.valid, self.given)

    def trimmed(self) -> "Batch":
        """The columns to compute: on a CPU, where padding costs what text does, those of the longest row.

        A GPU would make a graph for each width.
        """
        if self.x.device.type != "cpu":
            return self
        used = self.valid.any(0).nonzero()
        longest = int(used.max()) + 1 if len(used) else 1
        width = -(-longest // _COLUMNS) * _COLUMNS
        given, counted = (m if m is None else m[:, :width] for m in (self.given, self.counted))
        return Batch(self.x[:, :width], self.valid[:, :width], given, counted)


class Estimator(ABC):
    """Nats of rows under one draw of the noise; `certificate` and `of` go with every figure."""

    method: Method

    @property
    @abstractmethod
    def certificate(self) -> str:
        """The relation of the mean of the draws to the true value: exact, upper, pseudo or none."""

    @property
    @abstractmethod
    def of(self) -> str:
        """What it is a likelihood of."""

    @abstractmethod
    def terms(self, rows: Batch, streams: Sequence[RowStream]) -> dict[str, ByRow]:
        """Nats of each row, by term; the streams belong to the rows in order."""

    def draws(self, rows: Batch, streams: Sequence[Sequence[RowStream]]) -> list[dict[str, ByRow]]:
        """The terms under several draws."""
        return [self.terms(rows, one) for one in streams]

    @property
    def noisy(self) -> bool:
        """True if another draw gives another number."""
        return self.certificate in ("upper", "none")


@dataclass(frozen=True, eq=False)
class OwnBound(Estimator):
    """What the method's own `nll` says: the chain rule of an autoregressive model, or a NELBO."""

    method: Method
    times: TimeSampler | None = None
    prior: bool = True  # whether the first step's term is measured

    @property
    def certificate(self) -> str:
        return self.method.certificate

    @property
    def of(self) -> str:
        if self.times is None:
            return "left to right" if self.method.capabilities.causal else "as the method says"
        inner = self.times.times if isinstance(self.times, Seen) else self.times
        process = f"T = {self.method.steps}" if self.method.steps else "continuous time"
        return f"{process}, {TIME_SAMPLERS.name_of(inner)} estimator"

    def terms(self, rows: Batch, streams: Sequence[RowStream]) -> dict[str, ByRow]:
        cuts = [len(stream.rows) for stream in streams]
        drawn = [
            self.method.noise(stream, part, self.times)
            for stream, part in zip(streams, rows.wanted.split(cuts), strict=True)
        ]
        parts, rows = [part for part in drawn if part is not None], rows.trimmed()
        noise = parts[0].joined(parts).columns(rows.x.shape[1]) if parts else None
        if isinstance(noise, Noise) and not self.prior:
            noise = replace(noise, unstarted=0.0)
        losses = self.method.nll(rows.x, rows.valid, noise, full_bound=True, given=rows.given)
        return {name: values.double().sum(1) for name, values in losses.terms.items()}

    def draws(self, rows: Batch, streams: Sequence[Sequence[RowStream]]) -> list[dict[str, ByRow]]:
        """The terms under several draws; the prior's, of all-MASK, has no noise and is measured once."""
        first = self.terms(rows, streams[0])
        shared = {name: nats for name, nats in first.items() if name == "prior" and self.times}
        others = replace(self, prior=not shared)
        return [first, *(others.terms(rows, one) | shared for one in streams[1:])]


@dataclass(frozen=True)
class Seen(TimeSampler):
    """The times of another sampler, with masks that hide something: the empty ones cost nothing.

    A rare token masked at t near 0 weighs 1/t, whose variance has no limit. Drawn from the masks that
    are not empty and weighed by their chance, it weighs at most the length of its row.
    """

    times: TimeSampler

    @torch.no_grad()
    def draw(self, stream: RowStream, valid: Valid, schedule: Schedule, steps: int = 0) -> Noise:
        noise = self.times.draw(stream, valid, schedule, steps)
        u = stream.uniform("mask", valid.shape[1])  # the sampler's own
        masked, chance = not_empty(u, schedule.alpha(noise.t), valid)
        return replace(noise, masked=masked, importance=noise.importance * chance)


def not_empty(
    u: Float64[Tensor, "rows length"], alpha_t: ByRow, valid: Valid
) -> tuple[Bool[Tensor, "rows length"], ByRow]:
    """Masked tokens given that there are any, from one uniform a token; and the chance of that.

    All 1 - u of a row are stretched by one factor, which takes the smallest u of the row to its
    distribution below 1 - alpha_t; the others stay uniform above it.
    """
    lengths = valid.sum(1).clamp(min=1)
    kept = torch.log(alpha_t)  # log-chance of each token to stay
    chance = -torch.expm1(lengths * kept)
    smallest = torch.log1p(-u.masked_fill(~valid, 1.0).amin(1).clamp(max=1 - 2**-53))
    rank = -torch.expm1(lengths * smallest).clamp(min=2**-53 - 1)  # of the smallest: uniform
    stretch = torch.log1p(-rank * chance) / lengths - smallest
    return (torch.log1p(-u) + stretch[:, None] > kept[:, None]) & valid, chance


# No end of time is left out, whatever a method trains with.
ESTIMATORS: dict[str, TimeSampler] = {
    "fixed_count": FixedCount(),
    "importance": Seen(Importance()),
    "stratified": Seen(Stratified(t_min=0.0)),
    "uniform": Seen(Uniform(t_min=0.0)),
}


def own_bound(method: Method, estimator: str | None = None, steps: int | None = None) -> OwnBound:
    """The bound of a method by a time sampler, the one with the least variance unless given.

    In `steps` steps, or continuous time (0); as the method trains unless given.
    """
    if not method.capabilities.time_bound:
        if estimator is not None or steps is not None:
            raise UnmaskError(
                f"this model's likelihood is {method.certificate}: an estimator and steps are for "
                "diffusion models, leave them out"
            )
        return OwnBound(method)
    if steps is not None:
        method = in_steps(cast(MaskedDiffusion, method), steps)
    name = estimator or "fixed_count"
    if name not in ESTIMATORS:
        raise unknown("estimator", name, ESTIMATORS)
    return OwnBound(method, ESTIMATORS[name])


def in_steps(method: MaskedDiffusion, steps: int) -> MaskedDiffusion:
    """The same network as a model of T steps; the method itself stays as it is."""
    if steps == method.steps:
        return method
    if not hasattr(method.config, "steps"):
        raise UnmaskError(
            f"{METHODS.name_of(method)} has a bound in continuous time only: leave steps out"
        )
    replace(method.config, steps=steps)  # complains of a number that the method cannot have
    other = copy.copy(method)
    other.steps = steps
    return other
