"""Taking words back: samplers that hide some of what they have written and write it again."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.process import unmask_probability
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError, unknown
from unmask.options import option
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import check_grid, grid_times
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import Places

RULES = {"cap": 0.008, "rescale": 0.015, "conf": 1.0, "loop": 0.02}  # and the eta of each

Alpha = Float64[Tensor, ""]
Chance = Float64[Tensor, "rows length"]  # on the CPU


@SAMPLERS.register("remask")
@dataclass(frozen=True)
class Remask(Sampler):
    """ReMDM: each step also hides written tokens with probability sigma, and reveals as many more.

    Which places change does not depend on the network, except through confidence in what is
    written, so a row is asked for only in steps that reveal something in it.
    """

    revises = True
    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")
    rule: str = option(
        "cap", help="sigma: cap min(eta, largest), rescale eta * largest, conf, loop"
    )
    eta: float | None = option(
        None, help="unless given: cap 0.008, rescale 0.015, conf 1, loop 0.02"
    )
    t_on: float = option(0.55, help="loop reveals until this time")
    t_off: float = option(0.05, help="loop revises until this time, then reveals the rest")
    alpha_on: float = option(0.9, help="the share that is visible while loop revises")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)
        if self.rule not in RULES:
            raise unknown("rule", self.rule, RULES)
        if not 0 <= self.strength <= 1:
            raise UnmaskError(f"eta must lie in [0, 1], not {self.eta}")
        if not 0 < self.t_off < self.t_on < 1:
            raise UnmaskError(f"need 0 < t_off < t_on < 1, not {self.t_off}, {self.t_on}")
        if not 0 < self.alpha_on < 1:
            raise UnmaskError(f"alpha_on must lie between 0 and 1, not {self.alpha_on}")

    @property
    def strength(self) -> float:
        """eta, the rule's own unless given."""
        return RULES[self.rule] if self.eta is None else self.eta

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Reveals with probability (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t) while it hides with sigma."""
        state = SamplerState(denoiser, canvas, task)
        grid = grid_times(self.grid, self.steps)
        alpha, times = self._clock(grid, task.schedule)
        for step, t in enumerate(times[:-1]):
            alpha_t, alpha_s = alpha[step], alpha[step + 1]
            revising = self.rule != "loop" or self.t_off < grid[step] <= self.t_on
            sigma = self._sigma(state, alpha_s, alpha_t) if revising else grid.new_zeros(1, 1)
            revealed = unmask_probability(alpha_s, alpha_t) + sigma * alpha_t / (1 - alpha_t)
            moved = state.uniforms("move", step).cpu()
            hidden = (moved < sigma).to(state.z.device) & written(state)
            revealed = (moved < revealed).to(state.z.device) & state.masked
            if revealed.any():
                view = state.look(revealed, t.expand(len(state.z)))
                state.write(view, state.uniforms("token", step))
            if hidden.any():
                state.hide(hidden)
            if revealed.any() or hidden.any():
                yield state.frame()

    def _clock(
        self, grid: Float64[Tensor, "times"], schedule: Schedule
    ) -> tuple[Float64[Tensor, "times"], Float64[Tensor, "times"]]:
        """alpha at each step, and the time at which the network knows it."""
        if self.rule != "loop":
            return closed(schedule.alpha(grid)), grid
        rising = self.alpha_on * (1 - grid) / (1 - self.t_on)
        ending = 1 - (1 - self.alpha_on) * grid / self.t_off
        alpha = closed(torch.maximum(rising.clamp(max=self.alpha_on), ending))
        return alpha, schedule.inverse(alpha).detach()

    def _sigma(self, state: SamplerState, alpha_s: Alpha, alpha_t: Alpha) -> Chance:
        """The chance that a place is hidden if it is written; masked ones are revealed to make up for it.

        conf hides `largest` tokens a row on average, those drawn with little confidence first.
        """
        largest = ((1 - alpha_s) / alpha_t.clamp(min=1e-12)).clamp(max=1)
        if self.rule in ("cap", "loop"):
            return largest.clamp(max=self.strength).expand(1, 1)
        if self.rule == "rescale":
            return (self.strength * largest).expand(1, 1)
        # the paper's: sigma is 0 at masked places, so that a text lags behind its schedule
        doubt = torch.exp(-state.confidence.double().cpu()) * written(state).cpu()
        total = doubt.sum(1, keepdim=True)
        return self.strength * largest * torch.where(total > 0, doubt / total, 0.0)


@SAMPLERS.register("predictor_corrector")
@dataclass(frozen=True)
class PredictorCorrector(Sampler):
    """Ancestral steps, each of them undone by noise and taken again a few times."""

    revises = True
    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")
    correctors: int = option(1, help="times that each step is undone by noise and taken again")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)
        if not 0 <= self.correctors <= 1000:
            raise UnmaskError(f"correctors must lie in 0..1000, not {self.correctors}")

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Noise from s to t masks a written token with probability 1 - alpha_t / alpha_s."""
        state = SamplerState(denoiser, canvas, task)
        times = grid_times(self.grid, self.steps)
        alpha = closed(task.schedule.alpha(times))
        for number in range(self.steps * (1 + self.correctors)):
            step, correcting = divmod(number, 1 + self.correctors)
            alpha_t, alpha_s = alpha[step], alpha[step + 1]
            hidden = torch.zeros_like(state.masked)
            if correcting:
                noised = state.uniforms("noise", number).cpu() < 1 - alpha_t / alpha_s
                hidden = noised.to(state.z.device) & written(state)
                state.hide(hidden)
            revealed = state.uniforms("reveal", number).cpu() < unmask_probability(alpha_s, alpha_t)
            revealed = revealed.to(state.z.device) & state.masked
            if revealed.any():
                view = state.look(revealed, times[step].expand(len(state.z)))
                state.write(view, state.uniforms("token", number))
            if revealed.any() or hidden.any():
                yield state.frame()


def written(state: SamplerState) -> Places:
    """The places that may be hidden."""
    return state.canvas.free & ~state.masked


def closed(alpha: Float64[Tensor, "times"]) -> Float64[Tensor, "times"]:
    """alpha on a grid whose last step reveals all that is left, and no step before it."""
    alpha = alpha.detach().clamp(max=1 - 1e-12)
    alpha[-1] = 1.0
    return alpha
