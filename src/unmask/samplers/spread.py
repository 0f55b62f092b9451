"""Samplers whose steps write tokens that are far apart, since independent draws of neighbours do not fit."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.samplers.ancestral import reveal_steps
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.graph_rounds import reveal_in_rounds
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import check_grid, check_steps, grid_times
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import Places, Uniforms

GOLDEN = (5**0.5 - 1) / 2  # multiples of it, modulo 1, are evenly distributed


@SAMPLERS.register("spread")
@dataclass(frozen=True)
class Spread(Sampler):
    """The reverse process with reveal times of low discrepancy: the tokens of a step are far apart.

    Each token has the same reveal probability in each step as in ancestral sampling. The times of a
    row are not independent: they are the multiples of the golden ratio, modulo 1, after a random shift.
    """

    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. The step of each token is known before the first network call."""
        return write_spread(SamplerState(denoiser, canvas, task), self.grid, self.steps)


@SAMPLERS.register("refine")
@dataclass(frozen=True)
class Refine(Sampler):
    """Writes as `spread`, then masks the least confident token of each segment and draws it again.

    A token that was drawn early has seen few other tokens. Each token is drawn again at most once.
    """

    revises = True
    steps: int = option(128, help="denoising steps and revisions together, each one network call")
    revised: float = option(0.25, help="share of the steps that revise the written text")
    share: float = option(0.1, help="share of the tokens that a revision draws again")

    def __post_init__(self) -> None:
        for name in ("revised", "share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UnmaskError(f"{name} must lie in [0, 1], not {getattr(self, name)}")
        check_steps(self.steps)

    @property
    def revisions(self) -> int:
        """Number of steps that revise; at least one step writes."""
        return min(round(self.revised * self.steps), self.steps - 1)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. A revision reads each row once, with one mask in each segment."""
        state = SamplerState(denoiser, canvas, task)
        yield from write_spread(state, "uniform", self.steps - self.revisions)
        segment, settled = segments(canvas.free, self.share), ~canvas.free
        for number in range(self.revisions):
            doubtful = lowest(state.confidence, segment, ~settled)
            if not doubtful.any():
                break
            state.hide(doubtful)
            state.write(state.look(doubtful, state.now), state.uniforms("redraw", number))
            settled = settled | doubtful
            yield state.frame(settled)
        if canvas.free.any():
            yield state.frame(~state.masked)  # no token changes any more


def write_spread(state: SamplerState, grid: str, steps: int) -> Iterator[Frame]:
    """Writes all open tokens, those of a step far apart."""
    times = grid_times(grid, steps)
    u = rotation(state.uniforms("reveal").cpu(), state.canvas.open.cpu())
    step = reveal_steps(u, state.task.schedule, times)
    return reveal_in_rounds(state, times[step], lambda t: t)


def rotation(u: Uniforms, places: Places) -> Uniforms:
    """Multiples of the golden ratio at the positions of a row, modulo 1, shifted by its first uniform.

    Each number is uniform on [0, 1). Positions whose numbers are close to each other are far apart.
    """
    rank = places.cumsum(1) - 1
    return (u[:, :1] + rank * GOLDEN) % 1


def segments(places: Places, share: float) -> Int[Tensor, "rows length"]:
    """The number of the segment of each position; a row has `share` times as many segments as positions."""
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
