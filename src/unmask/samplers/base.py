"""What a sampler works on: a canvas of fixed and open tokens, a plan, and frames of the text forming."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.diffusion.categorical import draw, sharpen
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError
from unmask.registry import Registry

Tokens = Int[Tensor, "rows length"]
Places = Bool[Tensor, "rows length"]
At = tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]]


@runtime_checkable
class Denoise(Protocol):
    """log x_theta at chosen (row, column) places of z_t, at time t (one a row)."""

    def __call__(
        self, z_t: Tokens, t: Float[Tensor, "rows"], at: At
    ) -> Float[Tensor, "tokens vocabulary"]: ...


@dataclass(frozen=True)
class Canvas:
    """Where text is to appear: MASK at open places, and what is there already, which never changes."""

    tokens: Tokens
    mask_id: int

    @property
    def open(self) -> Places:
        """The places to fill."""
        return self.tokens == self.mask_id


@dataclass(frozen=True)
class Plan:
    """How to fill a canvas: one seed a row, and how sharply tokens are drawn."""

    seeds: list[int]
    schedule: Schedule
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    banned: tuple[int, ...] = ()  # tokens never drawn

    def choose(
        self,
        log_probabilities: Float[Tensor, "tokens vocabulary"],
        uniforms: Float[Tensor, "tokens"],
    ) -> Int[Tensor, "tokens"]:
        """Draws a token at each place."""
        if self.banned:
            log_probabilities = log_probabilities.clone()
            log_probabilities[:, list(self.banned)] = -math.inf
        sharp = sharpen(log_probabilities, self.temperature, self.top_k, self.top_p)
        return draw(sharp, uniforms)

    def rows(self, seeds: list[int]) -> "Plan":
        """The same plan with other seeds."""
        return replace(self, seeds=seeds)


@dataclass(frozen=True)
class Frame:
    """One moment of the text forming: tokens, which of them are new, network calls of each row so far."""

    tokens: Tokens
    changed: Places
    calls: Int[Tensor, "rows"]


class Sampler(ABC):
    """Fills a canvas frame by frame; knows diffusion and a callable, never a method or a network."""

    exact: bool = False  # does it reproduce the model's own distribution?

    @abstractmethod
    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """Frames of the canvas filling up; the last has no open place."""


SAMPLERS: Registry[Sampler] = Registry("sampler")


def check_steps(steps: int) -> None:
    """A sampler needs at least one step."""
    if steps < 1:
        raise UnmaskError(f"steps must be 1 or more, not {steps}")


def last_frame(frames: Iterator[Frame], canvas: Canvas) -> Frame:
    """Runs a sampler to its end."""
    rows = len(canvas.tokens)
    none = torch.zeros(rows, dtype=torch.long)
    frame = Frame(canvas.tokens, torch.zeros_like(canvas.open), none)
    for frame in frames:  # noqa: B007
        pass
    return frame
