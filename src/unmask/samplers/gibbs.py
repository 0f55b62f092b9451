"""Gibbs sampling of a finished text; its stationary distribution is the model's own."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from unmask.diffusion.denoiser import Denoiser
from unmask.options import option
from unmask.randomness import row_uniforms
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.core.canvas import Canvas, Frame, shown
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import check_steps
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.remasking import last_masking
from unmask.samplers.sampler import SAMPLERS, Sampler


@SAMPLERS.register("gibbs")
@dataclass(frozen=True)
class Gibbs(Sampler):
    """Fills the canvas with another sampler, then masks and redraws random tokens,
    one per row and step.
    """

    revises = rewrites = True
    steps: int = option(128, help="redraws in each row")
    inner: Sampler = field(default_factory=Ancestral)

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. Each redraw conditions on all other tokens of its row."""
        state = SamplerState(denoiser, canvas, task)
        position_uniforms = row_uniforms(task.seeds, "gibbs", self.steps)
        token_uniforms = row_uniforms(task.seeds, "redraw", self.steps)
        free = canvas.free.cpu()
        rank = free.cumsum(1) - 1  # index of each free position among those of its row
        chosen = (position_uniforms * free.sum(1, keepdim=True)).long()  # [rows, steps]
        redrawn = [free & (rank == one[:, None]) for one in chosen.T]  # of each step
        last = last_masking(state, redrawn)
        if canvas.open.any():
            for frame in shown(self.inner.generate(denoiser, canvas, task), task):
                state.z, state.confidence = frame.tokens.clone(), frame.confidence.clone()
                state.calls, state.t = frame.calls.clone(), frame.t.clone()
                known = last if not self.inner.revises else None
                yield state.frame(None if known is None else known < 0)
        if not canvas.free.any():
            return
        for step, positions in enumerate(redrawn):
            places = positions.to(state.z.device)
            state.hide(places)
            uniforms = token_uniforms[:, step, None].expand(state.z.shape)
            state.write(state.look(places, state.now), uniforms)
            yield state.frame(None if last is None else last <= step)
