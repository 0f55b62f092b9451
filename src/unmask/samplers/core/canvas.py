"""The canvas of fixed tokens and masks, and the frames of a text during sampling."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from unmask.samplers.core.token_sampler import SamplingTask
from unmask.shapes import Places, Times, Tokens


@dataclass(frozen=True)
class Canvas:
    """The rows to fill: MASK at open positions, fixed tokens elsewhere.

    A fixed token never changes, unless `revisable` is True there and the sampler rewrites tokens.
    """

    tokens: Tokens
    mask_id: int
    revisable: Places | None = None

    @property
    def open(self) -> Places:
        """True at positions to fill."""
        return self.tokens == self.mask_id

    @property
    def free(self) -> Places:
        """True at positions that may change: open or revisable."""
        return self.open if self.revisable is None else self.open | self.revisable


@dataclass(frozen=True)
class Frame:
    """The text after a step of a sampler."""

    tokens: Tokens
    # True where a token differs from the frame before; if not `watched`, True at all free positions
    changed: Places
    confidence: Float32[Tensor, "rows length"]  # probability of each token when written; 0 at masks
    calls: Int[Tensor, "rows"]  # network calls of each row so far
    t: Times  # time of the last call
    seconds: float  # since the start
    # True at tokens that no later step changes; None: all tokens if the sampler does not revise,
    # and
    # unknown if it does
    settled: Places | None = None


def shown(frames: Iterator[Frame], task: SamplingTask) -> Iterator[Frame]:
    """All frames if `watched` is set, or else the last one only."""
    if task.watched:
        yield from frames
        return
    last = None
    for frame in frames:
        last = frame
    if last is not None:
        yield last


def last_frame(frames: Iterator[Frame], canvas: Canvas) -> Frame:
    """Runs a sampler to its end.

    Args:
        frames: The frames of a sampler.
        canvas: The canvas that it fills.

    Returns:
        The last frame, or the canvas as a frame if there are none.
    """
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
