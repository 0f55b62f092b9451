"""Draws of tokens from log x_theta: temperature, top-k, top-p, allowed tokens."""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from unmask.cancellation import raise_if_cancelled
from unmask.diffusion.categorical import check_sharpness, draw, sharpen
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError, unknown
from unmask.shapes import At, LogProbabilities, Places, Tokens

TAIL = 0.1
STRATEGIES = ("stochastic", "deterministic", "hybrid")
LEAST_LOG_PROBABILITY = -1e30  # of allowed tokens; the model may give all of them probability 0


@runtime_checkable
class Allow(Protocol):
    """True at tokens with which a row can be completed, for each chosen position separately."""

    def __call__(self, z: Tokens, at: At) -> Bool[Tensor, "tokens vocabulary"]: ...


@runtime_checkable
class Process(Protocol):
    """A logits processor: changes the distributions at chosen positions of the rows `z`."""

    def __call__(
        self, log_probabilities: LogProbabilities, z: Tokens, at: At, /
    ) -> LogProbabilities: ...


@dataclass(frozen=True)
class GivenText:
    """A text that a sampler writes in place of its draws, with the log-probability of each token.

    A sampler of a part of the rows writes its log-probabilities into those of the whole.
    """

    tokens: Tokens
    log_p: Float64[Tensor, "rows length"]
    rows: Int[Tensor, "part"] | None = None  # the rows of a part; None: all
    start: int = 0  # the first column of a part

    def part(self, rows: Int[Tensor, "part"], start: int) -> "GivenText":
        """The text of some rows, from a column on.

        Args:
            rows: Indices among the rows of this text.
            start: The column of this text that is column 0 of the part.

        Returns:
            The part.
        """
        rows = rows if self.rows is None else self.rows[rows]
        return replace(self, rows=rows, start=self.start + start)

    def write(self, sharp: LogProbabilities, at: At) -> Int[Tensor, "tokens"]:
        """The tokens at some positions. Stores their log-probabilities.

        Args:
            sharp: The distributions from which a sampler would draw.
            at: Rows and columns of the positions.

        Returns:
            Token ids.
        """
        rows, columns = at
        whole = rows if self.rows is None else self.rows[rows], columns + self.start
        tokens = self.tokens[whole]
        self.log_p[whole] = sharp.gather(1, tokens[:, None])[:, 0].double()
        return tokens


@dataclass(frozen=True)
class SamplingTask:
    """Settings of one canvas: a seed for each row, sampling parameters, allowed tokens."""

    seeds: list[int]
    schedule: Schedule
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    # stochastic draws tokens; deterministic takes the likeliest; hybrid takes it in the tail only
    strategy: str = "stochastic"
    tail: float = TAIL  # share of the last tokens of a text, where hybrid takes the likeliest
    banned: tuple[int, ...] = ()  # ids that are never drawn
    allow: Allow | None = None  # constraint on the whole text
    processors: tuple[Process, ...] = ()  # applied in turn, after temperature, top-k and top-p
    eos_id: int | None = None  # id that ends a text; None if texts have a fixed length
    stop_ids: tuple[int, ...] = ()  # further ids that end a text
    watched: bool = True  # False if only the last frame is read: the others need no copies
    text: GivenText | None = None  # is written in place of draws

    def __post_init__(self) -> None:
        check_sharpness(self.temperature, self.top_k, self.top_p)
        if self.strategy not in STRATEGIES:
            raise unknown("strategy", self.strategy, STRATEGIES)
        if not 0 <= self.tail <= 1:
            raise UnmaskError(f"tail must lie in [0, 1], not {self.tail}")

    @property
    def token_sampler(self) -> "TokenSampler":
        """The token sampler with these settings."""
        return TokenSampler(self.temperature, self.top_k, self.top_p, self.strategy, self.banned)

    @property
    def simple(self) -> bool:
        """True if a draw depends only on the network's distribution,
        so a CUDA graph can compute it.
        """
        plain = self.strategy != "hybrid" and not self.processors
        return plain and self.allow is None and self.text is None

    def ends(self, z: Tokens) -> Places:
        """True at tokens that end a text.

        Args:
            z: The rows.

        Returns:
            The places.
        """
        found = torch.zeros_like(z, dtype=torch.bool)
        for token in (self.eos_id, *self.stop_ids):
            if token is not None:
                found |= z == token
        return found

    def restrict(self, log_probabilities: LogProbabilities, z: Tokens, at: At) -> LogProbabilities:
        """Restricts distributions to the allowed tokens.

        Args:
            log_probabilities: Distributions at the positions.
            z: The rows.
            at: Rows and columns of the positions.

        Returns:
            The distributions over tokens that are neither banned nor forbidden by the constraint.
        """
        raise_if_cancelled()
        allowed = None if self.allow is None else self.allow(z, at)
        return self.token_sampler.restrict(log_probabilities, allowed)

    def choose(
        self,
        log_probabilities: LogProbabilities,
        uniforms: Float64[Tensor, "tokens"],
        z: Tokens,
        at: At,
        greedy: Bool[Tensor, "tokens"] | None = None,
    ) -> Int[Tensor, "tokens"]:
        """Draws a token at each position, or takes the likeliest.

        Args:
            log_probabilities: Distributions at the positions.
            uniforms: One number per position.
            z: The rows.
            at: Rows and columns of the positions.
            greedy: True where the strategy hybrid takes the likeliest token.

        Returns:
            Token ids.
        """
        sharp = self.sharpened(log_probabilities, z, at)
        if self.text is not None:
            return self.text.write(sharp, at)
        drawn = self.token_sampler.pick(sharp, uniforms)
        if self.strategy != "hybrid" or greedy is None:
            return drawn
        likeliest = sharp if self.processors else log_probabilities
        return torch.where(greedy, likeliest.argmax(-1), drawn)

    def sharpened(self, log_probabilities: LogProbabilities, z: Tokens, at: At) -> LogProbabilities:
        """The distributions after temperature, top-k, top-p and the logits processors.

        Args:
            log_probabilities: Distributions at the positions.
            z: The rows.
            at: Rows and columns of the positions.

        Returns:
            The distributions from which a token is drawn.
        """
        sharp = self.token_sampler.sharpen(log_probabilities)
        for process in self.processors if len(sharp) else ():
            sharp = _processed(process, sharp, z, at)
        return sharp

    def rows(self, seeds: list[int]) -> "SamplingTask":
        """The same settings for other rows.

        Args:
            seeds: A seed for each of these rows.

        Returns:
            A copy with these seeds.
        """
        return replace(self, seeds=seeds)


@dataclass(frozen=True)
class TokenSampler:
    """Draws tokens from distributions. It is hashable,
    so that equal settings share a CUDA graph.
    """

    temperature: float
    top_k: int | None
    top_p: float | None
    strategy: str
    banned: tuple[int, ...]

    def __call__(
        self, log_probabilities: LogProbabilities, uniforms: Float64[Tensor, "tokens"]
    ) -> Float64[Tensor, "tokens 2"]:
        """A token at each position, and its confidence."""
        log_probabilities = self.restrict(log_probabilities)
        tokens = self.pick(self.sharpen(log_probabilities), uniforms)
        confidence = log_probabilities.gather(1, tokens[:, None])[:, 0].exp()
        return torch.stack([tokens.double(), confidence.double()], 1)

    def restrict(
        self,
        log_probabilities: LogProbabilities,
        allowed: Bool[Tensor, "tokens vocabulary"] | None = None,
    ) -> LogProbabilities:
        """The distributions over tokens that are allowed and not banned."""
        if not self.banned and allowed is None:
            return log_probabilities
        # allowed tokens are equally likely if the model gives all of them probability 0
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
        """The distributions after temperature, top-k and top-p; unchanged if deterministic."""
        if self.strategy == "deterministic":
            return log_probabilities
        return sharpen(log_probabilities, self.temperature, self.top_k, self.top_p)

    def pick(
        self, sharp: LogProbabilities, uniforms: Float64[Tensor, "tokens"]
    ) -> Int[Tensor, "tokens"]:
        """Draws a token at each position, or takes the likeliest."""
        return sharp.argmax(-1) if self.strategy == "deterministic" else draw(sharp, uniforms)


def _processed(
    process: Process, log_probabilities: LogProbabilities, z: Tokens, at: At
) -> LogProbabilities:
    """The distributions after a processor, normalised; tokens of probability 0 keep it."""
    changed = process(log_probabilities, z, at).masked_fill(log_probabilities.isneginf(), -math.inf)
    if not changed.amax(-1).isfinite().all():
        raise UnmaskError("a logits processor leaves no token to draw: change its options")
    return changed.log_softmax(-1)


@cache  # never freed: CUDA graphs read the tensors at their addresses
def _bounds(
    banned: tuple[int, ...], size: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, ""], Float[Tensor, "vocabulary"]]:
    """Lower and upper limits of the log-probabilities, on the device."""
    with torch.inference_mode(False):  # training mode may read the cached tensors too
        most = torch.full((size,), math.inf, dtype=dtype)
        most[list(banned)] = -math.inf  # `clamp` applies the upper limit last
        return torch.tensor(LEAST_LOG_PROBABILITY, dtype=dtype).to(device), most.to(device)
