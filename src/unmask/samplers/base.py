"""What a sampler works on: a canvas of fixed and open tokens, a plan, and frames of the text forming."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float32, Float64, Int
from torch import Tensor

from unmask.diffusion.categorical import check_sharpness, draw, sharpen
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError, unknown
from unmask.registry import Registry

Tokens = Int[Tensor, "rows length"]
Places = Bool[Tensor, "rows length"]
At = tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]]  # rows and columns
LogProbabilities = Float[Tensor, "tokens vocabulary"]
Uniforms = Float64[Tensor, "rows length"]
Times = Float64[Tensor, "rows"]  # one diffusion time a row, on the CPU

MOST_STEPS = 1_000_000
TAIL = 0.1
STRATEGIES = ("stochastic", "deterministic", "hybrid")


@runtime_checkable
class Denoise(Protocol):
    """log x_theta at chosen (row, column) places of z_t, at time t (one a row)."""

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities: ...


@runtime_checkable
class Allow(Protocol):
    """The tokens with which a row can still be completed, at chosen places, each taken alone."""

    def __call__(self, z: Tokens, at: At) -> Bool[Tensor, "tokens vocabulary"]: ...


@dataclass(frozen=True)
class Canvas:
    """Where text is to appear: MASK at open places, and what is there already.

    Fixed text never changes, except where `revisable` lets a revising sampler rewrite it.
    """

    tokens: Tokens
    mask_id: int
    revisable: Places | None = None

    @property
    def open(self) -> Places:
        """The places to fill."""
        return self.tokens == self.mask_id

    @property
    def free(self) -> Places:
        """The places that may change: to fill, or to revise."""
        return self.open if self.revisable is None else self.open | self.revisable


@dataclass(frozen=True)
class Plan:
    """How to fill a canvas: one seed a row, how sharply tokens are drawn, and which may be drawn."""

    seeds: list[int]
    schedule: Schedule
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    strategy: str = "stochastic"  # or deterministic: the likeliest token; or hybrid: at the tail
    tail: float = TAIL  # the last share of a text, whose tokens hybrid does not draw
    banned: tuple[int, ...] = ()  # tokens never drawn
    allow: Allow | None = None  # a constraint on the whole text
    eos_id: int | None = None  # what ends a text, where it may end

    def __post_init__(self) -> None:
        check_sharpness(self.temperature, self.top_k, self.top_p)
        if self.strategy not in STRATEGIES:
            raise unknown("strategy", self.strategy, STRATEGIES)
        if not 0 <= self.tail <= 1:
            raise UnmaskError(f"tail must lie in [0, 1], not {self.tail}")

    def restrict(self, log_probabilities: LogProbabilities, z: Tokens, at: At) -> LogProbabilities:
        """The distributions over the tokens that may be drawn."""
        if not self.banned and self.allow is None:
            return log_probabilities
        barred = torch.zeros_like(log_probabilities, dtype=torch.bool)
        barred[:, list(self.banned)] = True
        if self.allow is not None:
            barred |= ~self.allow(z, at)
        restricted = log_probabilities.masked_fill(barred, -math.inf)
        # where the model holds all that is allowed for impossible, the constraint decides alone
        impossible = restricted.amax(-1, keepdim=True) == -math.inf
        restricted = torch.where(impossible & ~barred, 0.0, restricted)
        return torch.log_softmax(restricted, -1)

    def choose(
        self,
        log_probabilities: LogProbabilities,
        uniforms: Float64[Tensor, "tokens"],
        greedy: Bool[Tensor, "tokens"],
    ) -> Int[Tensor, "tokens"]:
        """Draws a token at each place; the likeliest one where `greedy`."""
        sharp = sharpen(log_probabilities, self.temperature, self.top_k, self.top_p)
        return torch.where(greedy, log_probabilities.argmax(-1), draw(sharp, uniforms))

    def rows(self, seeds: list[int]) -> "Plan":
        """The same plan with other seeds."""
        return replace(self, seeds=seeds)


@dataclass(frozen=True)
class Frame:
    """One moment of the text forming."""

    tokens: Tokens
    changed: Places  # since the frame before
    confidence: Float32[Tensor, "rows length"]  # in each token when it was written; 0 where masked
    calls: Int[Tensor, "rows"]  # of the network, so far
    t: Times  # of the last call
    seconds: float  # since the start


class Sampler(ABC):
    """Fills a canvas frame by frame; knows diffusion and a callable, never a method or a network."""

    exact: ClassVar[bool] = False  # does it reproduce the model's own distribution?
    revises: ClassVar[bool] = False  # does it change what it has written?
    rewrites: ClassVar[bool] = False  # does it change finished text, where it may?

    @abstractmethod
    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """Frames of the canvas filling up; the last has no open place."""


SAMPLERS: Registry[Sampler] = Registry("sampler")


def check_steps(steps: int) -> None:
    """A sampler needs at least one step, and can count only so many."""
    if steps < 1:
        raise UnmaskError(f"steps must be 1 or more, not {steps}")
    if steps > MOST_STEPS:
        raise UnmaskError(
            f"steps must be {MOST_STEPS} or less, not {steps} (first_hitting is ancestral's limit)"
        )


def last_frame(frames: Iterator[Frame], canvas: Canvas) -> Frame:
    """Runs a sampler to its end."""
    tokens = canvas.tokens
    rows = len(tokens)
    frame = Frame(
        tokens,
        torch.zeros_like(canvas.open),
        (~canvas.open).float(),
        torch.zeros(rows, dtype=torch.long),
        torch.ones(rows, dtype=torch.float64),
        0.0,
    )
    for frame in frames:  # noqa: B007
        pass
    return frame
