"""Ancestral sampling of masked diffusion in which each token has its own noise schedule."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState, View
from unmask.samplers.core.time_grid import check_grid, grid_times
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler


@runtime_checkable
class TokenScheduleDenoiser(Denoiser, Protocol):
    """A denoiser of a process in which each token has its own noise schedule."""

    def reveal_probability(self, s: float, t: float) -> Float[Tensor, "vocabulary"]:
        """The probability that a masked token of each id is revealed in the step from t to s."""


@SAMPLERS.register("token_schedule")
@dataclass(frozen=True)
class TokenScheduleSampler(Sampler):
    """The T-step reverse process of DiffusionBERT: frequent tokens are revealed first."""

    token_schedule = exact = True
    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. A step reveals token v with probability mu_v times
        that of its schedule.
        """
        if not isinstance(denoiser, TokenScheduleDenoiser):
            raise UnmaskError("guidance hides the schedules of the tokens: give sampler ancestral")
        state = SamplerState(denoiser, canvas, task)
        times = grid_times(self.grid, self.steps)
        for step in range(self.steps):
            t, s = float(times[step]), float(times[step + 1])
            chance = denoiser.reveal_probability(s, t).log()
            uniforms, tokens = state.uniforms("reveal", step), state.uniforms("token", step)
            for places in state.parts(state.masked):
                view = state.look(places, times[step].expand(len(state.z)))
                log_p = view.log_probabilities + chance.to(view.log_probabilities)
                total = log_p.logsumexp(-1)
                at = (view.rows.to(uniforms.device), view.columns.to(uniforms.device))
                revealed = uniforms[at].log() < total.to(uniforms)
                if s == 0:
                    revealed.fill_(True)
                view = View(view.rows, view.columns, log_p - total[:, None])
                state.write(view.only(revealed.to(view.rows.device)), tokens)
            if task.watched or s == 0:
                yield state.frame()
