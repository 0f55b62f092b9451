"""Sampling with revisions: the tokens of the lowest confidence are drawn again
after all are written.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.options import check_options, option
from unmask.samplers.core.canvas import Canvas, Frame, shown
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import check_grid
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.remasking import PredictorCorrector
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import Places

MOST_REVISIONS = 1000


@SAMPLERS.register("refine")
@dataclass(frozen=True)
class Refine(Sampler):
    """Writes with a predictor and a corrector,
    then draws the least confident token of each segment again.

    The tokens of a call are far apart. Revisions draw a token again at most once.
    """

    revises = True
    steps: int = option(128, help="denoising steps, each with a corrector step")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")
    revisions: int = option(8, ge=0, le=1000, help="revisions of the written text")
    share: float = option(0.1, gt=0, le=1, help="share of the tokens that a revision draws again")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)
        check_options(self)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. A revision reads each row once, with one mask in each segment."""
        state = SamplerState(denoiser, canvas, task)
        writer = PredictorCorrector(self.steps, self.grid, spread=True)
        for frame in shown(writer.generate(denoiser, canvas, task), task):
            state.z, state.confidence = frame.tokens.clone(), frame.confidence.clone()
            state.calls, state.t = frame.calls.clone(), frame.t.clone()
            yield state.frame()
        segment, settled = segments(canvas.free, self.share), ~canvas.free
        for number in range(self.revisions):
            # rounding errors, which depend on the batch, must not decide between equal tokens
            doubtful = lowest(state.confidence.round(decimals=6), segment, ~settled)
            if not doubtful.any():
                break
            state.hide(doubtful)
            state.write(state.look(doubtful, state.now), state.uniforms("redraw", number))
            settled = settled | doubtful
            yield state.frame(settled)
        if canvas.free.any():
            yield state.frame(~state.masked)  # no token changes any more


def segments(places: Places, share: float) -> Int[Tensor, "rows length"]:
    """The number of the segment of each position;
    a row has `share` times as many segments as positions.
    """
    count = places.sum(1, keepdim=True)
    number = (share * count).ceil().long()
    return (places.cumsum(1) - 1).clamp(min=0) * number // count.clamp(min=1)


def lowest(
    scores: Float[Tensor, "rows length"], segment: Int[Tensor, "rows length"], places: Places
) -> Places:
    """True at the lowest score of each segment, among some positions."""
    order = scores.masked_fill(~places, torch.inf).argsort(dim=1, stable=True)
    order = order.gather(1, segment.gather(1, order).argsort(dim=1, stable=True))
    ordered = segment.gather(1, order)
    first = torch.ones_like(places)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(places).scatter(1, order, first) & places
