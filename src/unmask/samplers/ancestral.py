"""Ancestral sampling of the reverse process, with reveal times drawn before any network call.

The time at which a token is revealed does not depend on the network.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.process import unmask_probability
from unmask.diffusion.schedule import Schedule
from unmask.options import option
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.graph_rounds import reveal_in_rounds
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import check_grid, grid_times
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import Uniforms


@SAMPLERS.register("ancestral")
@dataclass(frozen=True)
class Ancestral(Sampler):
    """The paper's T-step reverse process, exact,
    without network calls in steps that reveal nothing.
    """

    exact = True
    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. It draws the step of each token first;
        a row skips steps that reveal nothing.
        """
        state = SamplerState(denoiser, canvas, task)
        return reveal_by_steps(state, state.uniforms("reveal"), grid_times(self.grid, self.steps))


@SAMPLERS.register("spread")
@dataclass(frozen=True)
class Spread(Ancestral):
    """The reverse process with reveal times of low discrepancy: the tokens of a step are far apart.

    Each token alone has the reveal probabilities of ancestral sampling. The reveal times of a row
    are not independent: neighbours share no step that reveals less than 38% of the tokens.
    """

    exact = False

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. The step of each token is known before the first network call."""
        state = SamplerState(denoiser, canvas, task)
        u = state.spread_uniforms("reveal")
        return reveal_by_steps(state, u, grid_times(self.grid, self.steps))


@SAMPLERS.register("first_hitting")
@dataclass(frozen=True)
class FirstHitting(Sampler):
    """The reverse process in continuous time: one token per call, at its reveal time."""

    exact = True

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. The reveal time t solves u = (1 - alpha_t) / (1 - alpha_1)."""
        state = SamplerState(denoiser, canvas, task)
        end = torch.ones(1, dtype=torch.float64)
        masked_at_the_end = 1 - task.schedule.alpha(end).detach()
        u = state.uniforms("reveal").cpu()
        return reveal_in_rounds(
            state, u, lambda u: task.schedule.inverse(1 - u * masked_at_the_end)
        )


def reveal_by_steps(
    state: SamplerState, u: Uniforms, times: Float64[Tensor, "times"]
) -> Iterator[Frame]:
    """Frames of the reverse process, with one uniform per position for its reveal step."""
    step = reveal_steps(u.cpu(), state.task.schedule, times)
    return reveal_in_rounds(state, times[step], lambda t: t)


def reveal_steps(
    u: Float64[Tensor, "rows length"], schedule: Schedule, grid: Float64[Tensor, "times"]
) -> Int[Tensor, "rows length"]:
    """The step, from grid[i] to grid[i + 1], in which the reverse process reveals each token.

    A token that is masked at t is masked at s with probability (1 - alpha_s) / (1 - alpha_t). So
    step i or an earlier one reveals it with probability 1 - (1 - alpha_s) / (1 - alpha_1). The
    last step reveals all tokens that are left.
    """
    alpha = schedule.alpha(grid).detach()
    revealed = unmask_probability(alpha[1:], alpha[:1].expand_as(alpha[1:]))
    revealed[-1] = 1.0
    return torch.searchsorted(revealed, u, right=True)
