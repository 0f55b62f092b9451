"""Remasking samplers, which mask written tokens again and redraw them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.process import unmask_probability
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError
from unmask.options import check_options, option
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import check_grid, grid_times
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import Places, Uniforms

RULES = {"cap": 0.008, "rescale": 0.015, "conf": 1.0, "loop": 0.02}  # rule -> default eta

Probability = Float64[Tensor, "rows length"]  # on the CPU


@SAMPLERS.register("remask")
@dataclass(frozen=True)
class Remask(Sampler):
    """ReMDM: each step remasks written tokens with probability sigma and reveals as many more.

    Only the rule conf chooses positions by the network's output, the confidence of written tokens.
    So the network reads a row only in steps that reveal tokens in it.
    """

    revises = True
    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")
    rule: str = option(
        "cap",
        among=RULES,
        help="rule for sigma: cap min(eta, largest), rescale eta * largest, conf, loop",
    )
    eta: float | None = option(
        None,
        ge=0,
        le=1,
        help="scale of sigma; default: cap 0.008, rescale 0.015, conf 1, loop 0.02",
    )
    t_on: float = option(0.55, help="time at which loop begins to remask")
    t_off: float = option(0.05, help="time at which loop stops remasking and reveals the rest")
    alpha_on: float = option(0.9, gt=0, lt=1, help="share of unmasked tokens while loop remasks")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)
        check_options(self)
        if not 0 < self.t_off < self.t_on < 1:
            raise UnmaskError(
                f"t_off {self.t_off} and t_on {self.t_on} are out of order: "
                "choose 0 < t_off < t_on < 1"
            )

    @property
    def strength(self) -> float:
        """eta, or the default eta of the rule."""
        return RULES[self.rule] if self.eta is None else self.eta

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text.

        A step remasks with probability sigma and reveals with probability
        (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t).
        """
        state = SamplerState(denoiser, canvas, task)
        grid = grid_times(self.grid, self.steps)
        alpha, times = self._clock(grid, task.schedule)
        largest = self._largest_sigma(grid, alpha)
        last = last_masking(
            state, (state.uniforms("move", step).cpu() < p for step, p in enumerate(largest))
        )
        for step, t in enumerate(times[:-1]):
            alpha_t, alpha_s = alpha[step], alpha[step + 1]
            sigma = self._sigma(state, largest[step])
            revealed = unmask_probability(alpha_s, alpha_t) + sigma * alpha_t / (1 - alpha_t)
            u = state.uniforms("move", step).cpu()
            hidden = (u < sigma).to(state.z.device) & written(state)
            revealed = (u < revealed).to(state.z.device) & state.masked
            if revealed.any():
                view = state.look(revealed, t.expand(len(state.z)))
                state.write(view, state.uniforms("token", step))
            if hidden.any():
                state.hide(hidden)
            if revealed.any() or hidden.any():
                yield state.frame(None if last is None else last <= step)

    def _clock(
        self, grid: Float64[Tensor, "times"], schedule: Schedule
    ) -> tuple[Float64[Tensor, "times"], Float64[Tensor, "times"]]:
        """alpha at each time of the grid, and the time at which the network is called for it."""
        if self.rule != "loop":
            return ending_at_one(schedule.alpha(grid)), grid
        rising = self.alpha_on * (1 - grid) / (1 - self.t_on)
        ending = 1 - (1 - self.alpha_on) * grid / self.t_off
        alpha = ending_at_one(torch.maximum(rising.clamp(max=self.alpha_on), ending))
        return alpha, schedule.inverse(alpha).detach()

    def _largest_sigma(
        self, grid: Float64[Tensor, "times"], alpha: Float64[Tensor, "times"]
    ) -> Float64[Tensor, "steps"]:
        """The largest sigma of each step, which does not depend on the network."""
        largest = ((1 - alpha[1:]) / alpha[:-1].clamp(min=1e-12)).clamp(max=1)
        if self.rule in ("rescale", "conf"):
            return self.strength * largest
        capped = largest.clamp(max=self.strength)
        if self.rule == "cap":
            return capped
        return capped.where((self.t_off < grid[:-1]) & (grid[:-1] <= self.t_on), 0.0)

    def _sigma(self, state: SamplerState, largest: Float64[Tensor, ""]) -> Probability:
        """sigma: the probability that a written token is remasked.

        The rule conf remasks `largest` tokens of a row on average, mostly those of low confidence.
        """
        if self.rule != "conf":
            return largest.expand(1, 1)
        # as in the paper: sigma is 0 at masks, so reveals do not make up for remasked tokens
        doubt = torch.exp(-state.confidence.double().cpu()) * written(state).cpu()
        total = doubt.sum(1, keepdim=True)
        return largest * torch.where(total > 0, doubt / total, 0.0)


@SAMPLERS.register("predictor_corrector")
@dataclass(frozen=True)
class PredictorCorrector(Sampler):
    """Ancestral steps, each followed by corrector steps that mask tokens again and redraw them."""

    revises = True
    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")
    correctors: int = option(
        1, ge=0, le=1000, help="corrector steps after each step; each masks and redraws tokens"
    )
    spread: bool = option(False, help="mask and redraw tokens that are far apart")

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)
        check_options(self)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. A corrector step masks a token with probability 1
        - alpha_t / alpha_s.
        """
        state = SamplerState(denoiser, canvas, task)
        times = grid_times(self.grid, self.steps)
        alpha = ending_at_one(task.schedule.alpha(times))
        numbers = range(self.steps * (1 + self.correctors))
        last = last_masking(state, (self._noised(state, alpha, number) for number in numbers))
        for number in numbers:
            step = number // (1 + self.correctors)
            alpha_t, alpha_s = alpha[step], alpha[step + 1]
            hidden = self._noised(state, alpha, number).to(state.z.device) & written(state)
            if hidden.any():
                state.hide(hidden)
            revealed = self._uniforms(state, "reveal", number) < unmask_probability(
                alpha_s, alpha_t
            )
            revealed = revealed.to(state.z.device) & state.masked
            if revealed.any():
                view = state.look(revealed, times[step].expand(len(state.z)))
                state.write(view, state.uniforms("token", number))
            if revealed.any() or hidden.any():
                yield state.frame(None if last is None else last <= number)

    def _noised(
        self, state: SamplerState, alpha: Float64[Tensor, "times"], number: int
    ) -> Bool[Tensor, "rows length"]:
        """True at positions that a corrector step masks if they are written; on the CPU."""
        step, correcting = divmod(number, 1 + self.correctors)
        if not correcting:
            return torch.zeros(state.z.shape, dtype=torch.bool)
        return self._uniforms(state, "noise", number) < 1 - alpha[step] / alpha[step + 1]

    def _uniforms(self, state: SamplerState, name: str, number: int) -> Uniforms:
        """Uniforms of a step, on the CPU."""
        return (state.spread_uniforms if self.spread else state.uniforms)(name, number).cpu()


def last_masking(
    state: SamplerState, masked: Iterable[Bool[Tensor, "rows length"]]
) -> Int[Tensor, "rows length"] | None:
    """The last step that may mask each position, -1 for none; None if no frame is watched.

    Args:
        state: the state of the rows.
        masked: True at the positions that a step may mask, for each step in turn.
    """
    if not state.task.watched:
        return None
    last, free = torch.full(state.z.shape, -1), state.canvas.free.cpu()
    for step, places in enumerate(masked):
        last.masked_fill_(places & free, step)
    return last.to(state.z.device)


def written(state: SamplerState) -> Places:
    """True at written tokens, which a step may remask."""
    return state.canvas.free & ~state.masked


def ending_at_one(alpha: Float64[Tensor, "times"]) -> Float64[Tensor, "times"]:
    """alpha on a grid, changed to be 1 at the last time only,
    so that the last step reveals all masks.
    """
    alpha = alpha.detach().clamp(max=1 - 1e-12)
    alpha[-1] = 1.0
    return alpha
