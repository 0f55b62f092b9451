"""Samplers of methods without masks: rows begin with uniform tokens, and every step may change any of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch

from unmask.diffusion.categorical import check_sharpness, draw, sharpen
from unmask.diffusion.denoiser import Denoiser
from unmask.errors import UnmaskError
from unmask.extensions.uniform.diffusion.uniform_process import UniformDenoiser, UniformProcess
from unmask.options import option
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState, View
from unmask.samplers.core.time_grid import check_grid, check_steps, grid_times
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.remasking import ending_at_one
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import LogProbabilities, Uniforms


@SAMPLERS.register("uniform_ancestral")
@dataclass(frozen=True)
class UniformAncestral(Sampler):
    """The T-step reverse process of D3PM and UDLM with uniform tokens; each step can change any token.

    Temperature, top-k and top-p apply to the network's distributions, not to the steps. Fixed tokens stay
    as they are, and the network reads them without noise.
    """

    states = "uniform"
    revises = exact = True
    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text: z_s is drawn given z_t at all open positions."""
        process = cast(UniformDenoiser, denoiser).process
        state = uniform_start(denoiser, canvas, task, process)
        times = grid_times(self.grid, self.steps)
        alpha = ending_at_one(task.schedule.alpha(times))
        for step in range(self.steps):
            uniforms = state.uniforms("token", step)
            for places in state.parts(canvas.open):
                view = state.look(places, times[step].expand(len(state.z)))
                at = (view.rows, view.columns)
                mu = task.sharpened(view.log_probabilities, state.z, at)
                if task.strategy == "deterministic":
                    mu = sharpen(mu, top_k=1).log_softmax(-1)
                levels = alpha[step + 1], alpha[step]
                mu = mu if mu.device.type == "mps" else mu.double()  # Apple's GPUs have no float64
                log_p = process.log_posterior(mu.exp(), state.z[at], *levels)
                write_drawn(state, view, log_p, uniforms)
            if task.watched or step == self.steps - 1:
                yield state.frame()


@SAMPLERS.register("unrolled")
@dataclass(frozen=True)
class Unrolled(Sampler):
    """SUNDAE's sampler: each step draws a share of the tokens again, at a low temperature.

    The other tokens of the first steps are uniform, which the network takes for noise. If the first step drew
    all of them, independent tokens would pass for text. The last step draws every position that no step has
    drawn. The temperature of the options multiplies its own.
    """

    states = "text"
    revises = True
    steps: int = option(128, help="denoising steps")
    share: float = option(0.3, help="share of the positions that a step draws again")
    sharpness: float = option(0.8, help="temperature of the draws")

    def __post_init__(self) -> None:
        check_steps(self.steps)
        if not 0 < self.share <= 1:
            raise UnmaskError(f"share must lie in (0, 1], not {self.share}")
        check_sharpness(self.sharpness, None, None)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. The positions of a step are drawn independently of the network."""
        process = cast(UniformDenoiser, denoiser).process
        state = uniform_start(denoiser, canvas, task, process)
        start, noise = torch.zeros(len(state.z), dtype=torch.float64), canvas.open
        for step in range(self.steps):
            moved = (state.uniforms("move", step) < self.share).to(noise.device)
            chosen = canvas.open & moved
            if step == self.steps - 1:
                chosen = chosen | noise
            noise = noise & ~chosen
            for places in state.parts(chosen):
                view = state.look(places, start)
                sharp = sharpen(view.log_probabilities, self.sharpness)
                state.write(replace(view, log_probabilities=sharp), state.uniforms("token", step))
            if task.watched or step == self.steps - 1:
                yield state.frame()


def uniform_start(
    denoiser: Denoiser, canvas: Canvas, task: SamplingTask, process: UniformProcess
) -> SamplerState:
    """The state of rows whose open positions have uniform tokens."""
    state = SamplerState(denoiser, canvas, task)
    start = process.tokens(state.uniforms("start")).to(state.z.device)
    state.z = torch.where(canvas.open, start, state.z)
    return state


def write_drawn(
    state: SamplerState, view: View, log_p: LogProbabilities, uniforms: Uniforms
) -> None:
    """Draws a token at each position of a view from other distributions than the view's own.

    The confidence of a token is its probability in the view.
    """
    at = (view.rows, view.columns)
    tokens = draw(log_p, uniforms[at[0].to(uniforms.device), at[1].to(uniforms.device)])
    state.z[at] = tokens
    state.confidence[at] = view.log_probabilities.gather(1, tokens[:, None])[:, 0].exp().float()
