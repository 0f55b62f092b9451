"""Estimators of the likelihood, with their certificate and the process or order that they measure."""

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
    RowNoise,
    Stratified,
    TimeSampler,
    Uniform,
)
from unmask.errors import UnmaskError, unknown
from unmask.methods.block_diffusion import BlockDiffusion
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import METHODS, Method
from unmask.randomness import RowStream
from unmask.shapes import Batch, Valid

ByRow = Float64[Tensor, "rows"]
_COLUMNS = 16  # the width of a trimmed batch is a multiple of it


@dataclass(frozen=True)
class CountedBatch(Batch):
    """A batch whose average is per `counted` token, by default per token that is not given.

    A bound may also include the nats of tokens that are not counted.
    """

    counted: Valid | None = None

    def trimmed(self) -> "CountedBatch":
        """The columns of the longest row, rounded up to a multiple of 16."""
        used = self.valid.any(0).nonzero()
        longest = int(used.max()) + 1 if len(used) else 1
        width = -(-longest // _COLUMNS) * _COLUMNS
        given, counted = (m if m is None else m[:, :width] for m in (self.given, self.counted))
        return CountedBatch(self.x[:, :width], self.valid[:, :width], given, counted)

    def repeated(self, times: int) -> "CountedBatch":
        """All rows, several times one after the other."""
        given, counted = (
            m if m is None else m.repeat(times, 1) for m in (self.given, self.counted)
        )
        return CountedBatch(self.x.repeat(times, 1), self.valid.repeat(times, 1), given, counted)


class Estimator(ABC):
    """Nats of rows under one draw of the noise, with the certificate of the estimate."""

    method: Method

    @property
    @abstractmethod
    def certificate(self) -> str:
        """Relation of the mean over draws to the true value: exact, upper, pseudo or none."""

    @property
    @abstractmethod
    def of(self) -> str:
        """The process or order that the likelihood belongs to, in words."""

    @abstractmethod
    def terms(self, rows: CountedBatch, streams: Sequence[RowStream]) -> dict[str, ByRow]:
        """Nats of each row, by term. The streams cover the rows in order."""

    def draws(
        self, rows: CountedBatch, streams: Sequence[Sequence[RowStream]]
    ) -> list[dict[str, ByRow]]:
        """The terms of the rows under each of several draws."""
        return [self.terms(rows, one) for one in streams]

    @property
    def noisy(self) -> bool:
        """True if another draw gives another number."""
        return self.certificate in ("upper", "none")


@dataclass(frozen=True, eq=False)
class OwnBound(Estimator):
    """The method's own `nll`: the chain rule of an autoregressive model, or a NELBO."""

    method: Method
    times: TimeSampler | None = None
    prior: bool = True  # True if the prior term is computed
    batch: int = 1  # most rows of a pass with several draws

    @property
    def certificate(self) -> str:
        return self.method.certificate

    @property
    def of(self) -> str:
        if self.times is None:
            return "left to right" if self.method.capabilities.causal else "the method's own bound"
        inner = self.times.times if isinstance(self.times, NonEmptyMasks) else self.times
        process = f"T = {self.method.steps}" if self.method.steps else "continuous time"
        parts = [process, f"{TIME_SAMPLERS.name_of(inner)} estimator"]
        if self.method.capabilities.blocks:
            size = cast(BlockDiffusion, self.method).block
            parts.insert(0, f"blocks of {size}" if size else "whole rows")
        return ", ".join(parts)

    def noise(self, scored: Valid, streams: Sequence[RowStream]) -> RowNoise | None:
        """The noise of rows; None if the loss has none. The streams cover the rows in order."""
        cuts = [len(stream.rows) for stream in streams]
        drawn = [
            self.method.noise(stream, part, self.times)
            for stream, part in zip(streams, scored.split(cuts), strict=True)
        ]
        parts = [part for part in drawn if part is not None]
        return parts[0].joined(parts) if parts else None

    def terms(self, rows: CountedBatch, streams: Sequence[RowStream]) -> dict[str, ByRow]:
        return self.terms_of(rows, self.noise(rows.scored, streams))

    def terms_of(self, rows: CountedBatch, noise: RowNoise | None) -> dict[str, ByRow]:
        """Nats of each row under the given noise, by term."""
        if self.method.device.type == "cpu":  # a GPU would need a CUDA graph for each width
            rows = rows.trimmed()
            noise = noise and noise.columns(rows.x.shape[1])
        if isinstance(noise, Noise) and not self.prior:
            noise = replace(noise, unstarted=0.0)
        losses = self.method.nll(rows, noise, full_bound=True)
        return {name: values.double().sum(1) for name, values in losses.terms.items()}

    def draws(
        self, rows: CountedBatch, streams: Sequence[Sequence[RowStream]]
    ) -> list[dict[str, ByRow]]:
        """The terms under several draws, as many of them in one pass as `batch` has room for.

        The prior term has no noise: it is computed once and shared.
        """
        first = self.terms(rows, streams[0])
        shared = {name: nats for name, nats in first.items() if name == "prior" and self.times}
        others = replace(self, prior=not shared)
        found, most = [first], max(1, self.batch // len(rows.x))
        for start in range(1, len(streams), most):
            part = streams[start : start + most]
            terms = others.terms(rows.repeated(len(part)), [one for draw in part for one in draw])
            split = {name: nats.chunk(len(part)) for name, nats in terms.items()}
            found += [
                {name: nats[number] for name, nats in split.items()} | shared
                for number in range(len(part))
            ]
        return found


@dataclass(frozen=True)
class NonEmptyMasks(TimeSampler):
    """The times of another time sampler, with masks drawn from those of at least one token.

    An empty mask has no loss. A mask drawn near t = 0 has a weight of 1/t, whose variance is unbounded.
    Non-empty masks, weighted by the probability that a mask is not empty, have a weight of at most the
    row's length.
    """

    times: TimeSampler

    @torch.no_grad()
    def draw(self, stream: RowStream, valid: Valid, schedule: Schedule, steps: int = 0) -> Noise:
        noise = self.times.draw(stream, valid, schedule, steps)
        u = stream.uniform("mask", valid.shape[1])  # the same uniforms as the inner sampler's
        masked, chance = non_empty_masks(u, schedule.alpha(noise.t), valid)
        return replace(noise, masked=masked, importance=noise.importance * chance)


def non_empty_masks(
    u: Float64[Tensor, "rows length"], alpha_t: ByRow, valid: Valid
) -> tuple[Bool[Tensor, "rows length"], ByRow]:
    """Non-empty masks, from one uniform per token, and the probability that a mask is not empty.

    One factor scales all 1 - u of a row. It maps the smallest u to its conditional distribution below
    1 - alpha_t. The others stay uniform above it.
    """
    lengths = valid.sum(1).clamp(min=1)
    log_alpha = torch.log(alpha_t)  # log-probability that a token stays unmasked
    chance = -torch.expm1(lengths * log_alpha)
    smallest = torch.log1p(-u.masked_fill(~valid, 1.0).amin(1).clamp(max=1 - 2**-53))
    rank = -torch.expm1(lengths * smallest).clamp(min=2**-53 - 1)  # of the smallest: uniform
    stretch = torch.log1p(-rank * chance) / lengths - smallest
    return (torch.log1p(-u) + stretch[:, None] > log_alpha[:, None]) & valid, chance


# t_min is 0, even if a method trains with a larger one: the bound covers all noise levels.
ESTIMATORS: dict[str, TimeSampler] = {
    "fixed_count": FixedCount(),
    "importance": NonEmptyMasks(Importance()),
    "stratified": NonEmptyMasks(Stratified(t_min=0.0)),
    "uniform": NonEmptyMasks(Uniform(t_min=0.0)),
}


def own_bound(
    method: Method, estimator: str | None = None, steps: int | None = None, batch: int = 1
) -> OwnBound:
    """The bound of a method.

    Args:
        method: The model.
        estimator: Time sampler, a name of ESTIMATORS; by default the one with the least variance.
        steps: T of the bound, 0 for continuous time; by default the T of training.
        batch: Most rows of a pass with several draws.
    """
    if not method.capabilities.time_bound:
        if estimator is not None or steps is not None:
            raise UnmaskError(
                f"this model's likelihood is {method.certificate} and has no estimator and no steps: "
                "leave them out"
            )
        return OwnBound(method, batch=batch)
    if steps is not None:
        method = in_steps(cast(MaskedDiffusion, method), steps)
    name = estimator or "fixed_count"
    if name not in ESTIMATORS:
        raise unknown("estimator", name, ESTIMATORS)
    return OwnBound(method, ESTIMATORS[name], batch=batch)


def in_steps(method: MaskedDiffusion, steps: int) -> MaskedDiffusion:
    """A copy of the method with T steps; it shares the network, and `method` is not changed."""
    if steps == method.steps:
        return method
    if not hasattr(method.config, "steps"):
        raise UnmaskError(
            f"{METHODS.name_of(method)} has a bound in continuous time only: leave steps out"
        )
    replace(method.config, steps=steps)  # raises an error if the method cannot have this T
    other = copy.copy(method)
    other.steps = steps
    return other
