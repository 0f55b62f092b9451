"""Draws tokens from log x_theta: temperature, top-k, top-p, allowed tokens."""

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from unmask.diffusion.categorical import check_sharpness, draw, sharpen
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError, unknown
from unmask.shapes import At, LogProbabilities, Tokens

TAIL = 0.1
STRATEGIES = ("stochastic", "deterministic", "hybrid")
UNHEARD_OF = -1e30  # a log-probability from which nothing is left beside any other
# called at every turn, and raises if nobody waits for the text any more: steps without a network call
# can be many, and a constraint can take long
cancellation: ContextVar[Callable[[], None]] = ContextVar("cancellation", default=lambda: None)


@runtime_checkable
class Allow(Protocol):
    """The tokens with which a row can still be completed, at chosen places, each taken alone."""

    def __call__(self, z: Tokens, at: At) -> Bool[Tensor, "tokens vocabulary"]: ...


@runtime_checkable
class Process(Protocol):
    """A change of the distributions at chosen places of the rows `z`: a logits processor."""

    def __call__(
        self, log_probabilities: LogProbabilities, z: Tokens, at: At, /
    ) -> LogProbabilities: ...


@dataclass(frozen=True)
class SamplingTask:
    """Settings of one canvas: a seed for each row, the sharpness of draws, the tokens that may be drawn."""

    seeds: list[int]
    schedule: Schedule
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    strategy: str = "stochastic"  # or deterministic: the likeliest token; or hybrid: at the tail
    tail: float = TAIL  # the last share of a text, whose tokens hybrid does not draw
    banned: tuple[int, ...] = ()  # tokens never drawn
    allow: Allow | None = None  # a constraint on the whole text
    processors: tuple[Process, ...] = ()  # after temperature, top-k and top-p, one after the other
    eos_id: int | None = None  # what ends a text, where it may end
    watched: bool = True  # or only the last frame is looked at: those before it are not kept

    def __post_init__(self) -> None:
        check_sharpness(self.temperature, self.top_k, self.top_p)
        if self.strategy not in STRATEGIES:
            raise unknown("strategy", self.strategy, STRATEGIES)
        if not 0 <= self.tail <= 1:
            raise UnmaskError(f"tail must lie in [0, 1], not {self.tail}")

    @property
    def manner(self) -> "TokenSampler":
        """How tokens are drawn where nothing but their distribution matters."""
        return TokenSampler(self.temperature, self.top_k, self.top_p, self.strategy, self.banned)

    @property
    def simple(self) -> bool:
        """True if a draw depends on the network's distribution alone; a CUDA graph can then hold it."""
        return self.allow is None and self.strategy != "hybrid" and not self.processors

    def restrict(self, log_probabilities: LogProbabilities, z: Tokens, at: At) -> LogProbabilities:
        """The distributions over the tokens that may be drawn."""
        cancellation.get()()
        allowed = None if self.allow is None else self.allow(z, at)
        return self.manner.restrict(log_probabilities, allowed)

    def choose(
        self,
        log_probabilities: LogProbabilities,
        uniforms: Float64[Tensor, "tokens"],
        z: Tokens,
        at: At,
        greedy: Bool[Tensor, "tokens"] | None = None,
    ) -> Int[Tensor, "tokens"]:
        """Draws a token at each place, or takes the likeliest; hybrid does so where `greedy`."""
        manner = self.manner
        sharp = manner.sharpen(log_probabilities)
        for process in self.processors if len(sharp) else ():
            sharp = _processed(process, sharp, z, at)
        drawn = manner.pick(sharp, uniforms)
        if self.strategy != "hybrid" or greedy is None:
            return drawn
        likeliest = sharp if self.processors else log_probabilities
        return torch.where(greedy, likeliest.argmax(-1), drawn)

    def rows(self, seeds: list[int]) -> "SamplingTask":
        """The same plan with other seeds."""
        return replace(self, seeds=seeds)


@dataclass(frozen=True)
class TokenSampler:
    """How tokens are drawn from distributions: a function of tensors, equal where its fields are."""

    temperature: float
    top_k: int | None
    top_p: float | None
    strategy: str
    banned: tuple[int, ...]

    def __call__(
        self, log_probabilities: LogProbabilities, uniforms: Float64[Tensor, "tokens"]
    ) -> Float64[Tensor, "tokens 2"]:
        """A token at each place, and the confidence in it."""
        log_probabilities = self.restrict(log_probabilities)
        tokens = self.pick(self.sharpen(log_probabilities), uniforms)
        confidence = log_probabilities.gather(1, tokens[:, None])[:, 0].exp()
        return torch.stack([tokens.double(), confidence.double()], 1)

    def restrict(
        self,
        log_probabilities: LogProbabilities,
        allowed: Bool[Tensor, "tokens vocabulary"] | None = None,
    ) -> LogProbabilities:
        """The distributions over the tokens that are not banned, and allowed."""
        if not self.banned and allowed is None:
            return log_probabilities
        # where the model holds all that is allowed for impossible, the constraint decides alone
        least, most = _bounds(
            self.banned,
            log_probabilities.shape[-1],
            log_probabilities.dtype,
            log_probabilities.device,
        )
        log_probabilities = log_probabilities.clamp(least, most)
        if allowed is not None:
            log_probabilities = log_probabilities.masked_fill(~allowed, -math.inf)
        return log_probabilities.log_softmax(-1)

    def sharpen(self, log_probabilities: LogProbabilities) -> LogProbabilities:
        """The distributions that tokens are drawn from; the likeliest token needs no change."""
        if self.strategy == "deterministic":
            return log_probabilities
        return sharpen(log_probabilities, self.temperature, self.top_k, self.top_p)

    def pick(
        self, sharp: LogProbabilities, uniforms: Float64[Tensor, "tokens"]
    ) -> Int[Tensor, "tokens"]:
        """Draws a token at each place, or takes the likeliest."""
        return sharp.argmax(-1) if self.strategy == "deterministic" else draw(sharp, uniforms)


def _processed(
    process: Process, log_probabilities: LogProbabilities, z: Tokens, at: At
) -> LogProbabilities:
    """The distributions after a processor, normalised; tokens that were barred before it stay so."""
    changed = process(log_probabilities, z, at).masked_fill(log_probabilities.isneginf(), -math.inf)
    if not changed.amax(-1).isfinite().all():
        raise UnmaskError("a logits processor leaves no token to draw: give it other options")
    return changed.log_softmax(-1)


@cache  # for good: graphs read them where they are
def _bounds(
    banned: tuple[int, ...], size: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, ""], Float[Tensor, "vocabulary"]]:
    """The least and the largest log-probability of each token, on the device once for all."""
    with torch.inference_mode(False):  # they are kept, and may be needed in any mode
        most = torch.full((size,), math.inf, dtype=dtype)
        most[list(banned)] = -math.inf  # the largest wins
        return torch.tensor(UNHEARD_OF, dtype=dtype).to(device), most.to(device)
