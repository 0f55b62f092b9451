"""The canvas of fixed and open tokens, and frames of the text as it forms."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from unmask.samplers.core.token_sampler import SamplingTask
from unmask.shapes import Places, Times, Tokens


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
class Frame:
    """One moment of the text forming."""

    tokens: Tokens
    changed: Places  # since the frame before
    confidence: Float32[Tensor, "rows length"]  # in each token when it was written; 0 where masked
    calls: Int[Tensor, "rows"]  # of the network, so far
    t: Times  # of the last call
    seconds: float  # since the start


def shown(frames: Iterator[Frame], task: SamplingTask) -> Iterator[Frame]:
    """All frames if somebody watches, the last alone otherwise."""
    if task.watched:
        yield from frames
        return
    last = None
    for frame in frames:
        last = frame
    if last is not None:
        yield last


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
