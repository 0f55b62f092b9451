"""Analytic (Tweedie) sampling for score models: the network sets the rate of reveals."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.parameterization import zero_masked
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import check_grid, grid_times
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import At, LogProbabilities, Tokens

LEAST_ALPHA = 1e-8  # smallest alpha; at alpha = 0 the score is infinite


@runtime_checkable
class Scores(Protocol):
    """A denoiser with log s_y, the log ratio of each token's probability to that of MASK."""

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities: ...

    def log_score(
        self, z_t: Tokens, t: Float[Tensor, "rows"], at: At
    ) -> Float[Tensor, "tokens vocabulary"]: ...


@SAMPLERS.register("analytic")
@dataclass(frozen=True)
class Analytic(Sampler):
    """Tweedie tau-leaping of SEDD: a token y appears with probability s_y
    (alpha_s / alpha_t - 1).
    """

    exact = True
    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. Each step scores all masks,
        since the scores give the reveal probabilities.
        """
        if not isinstance(denoiser, Scores):
            raise UnmaskError(
                "the sampler analytic needs a model of method sedd without guidance: "
                "choose another sampler, such as ancestral, or drop the guidance"
            )
        return self._frames(_NormalisedScores(denoiser, canvas.mask_id), canvas, task)

    def _frames(
        self, denoiser: "_NormalisedScores", canvas: Canvas, task: SamplingTask
    ) -> Iterator[Frame]:
        state = SamplerState(denoiser, canvas, task)
        uniforms = state.uniforms("token")
        times, alpha = finite_times(grid_times(self.grid, self.steps), task.schedule)
        for step, t in enumerate(times[:-1]):
            if not state.masked.any():
                return
            u = state.uniforms("reveal", step).cpu()
            for part in state.parts(state.masked):
                view = state.look(part, t.expand(len(state.z)))
                p_reveal = denoiser.mass * (alpha[step + 1] / alpha[step] - 1)
                if step == self.steps - 1:
                    p_reveal = torch.ones_like(p_reveal)
                revealed = u[view.rows.cpu(), view.columns.cpu()] < p_reveal
                state.write(view.only(revealed.to(view.rows.device)), uniforms)
            yield state.frame()


class _NormalisedScores:
    """A denoiser of normalised scores. `mass` stores the sums of the last call."""

    def __init__(self, scores: Scores, mask_id: int) -> None:
        self.scores, self.mask_id = scores, mask_id
        self.cost: int = getattr(scores, "cost", 1)
        self.mass: Float64[Tensor, "tokens"]  # sum of the scores at each position, on the CPU

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        log_score = zero_masked(self.scores.log_score(z_t, t, at), self.mask_id)
        self.mass = log_score.logsumexp(-1).cpu().double().exp()
        return log_score.log_softmax(-1)


def finite_times(
    times: Float64[Tensor, "times"], schedule: Schedule
) -> tuple[Float64[Tensor, "times"], Float64[Tensor, "times"]]:
    """Times and their alphas; a time whose alpha is too small moves to that of LEAST_ALPHA."""
    alpha = schedule.alpha(times).detach()
    latest = schedule.inverse(alpha.clamp(min=LEAST_ALPHA)).detach()
    times = torch.where(alpha < LEAST_ALPHA, latest, times)
    return times, schedule.alpha(times).detach()
