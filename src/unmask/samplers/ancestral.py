"""Sampling the reverse process, position first: when a token is revealed does not depend on the network."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from unmask.diffusion.schedule import Schedule
from unmask.samplers.base import SAMPLERS, Canvas, Denoise, Frame, Plan, Sampler, Times, Uniforms
from unmask.samplers.draft import Draft
from unmask.samplers.grid import check_grid, grid_times

DONE = -1.0


@SAMPLERS.register("ancestral")
@dataclass(frozen=True)
class Ancestral(Sampler):
    """The paper's T-step reverse process, exactly, without a network call for steps that reveal nothing."""

    exact = True
    steps: int = 128
    grid: str = "uniform"  # or cosine, or times such as 1,0.5,0

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)

    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """Draws every token's step first; then each row visits only the steps in which it reveals something."""
        draft = Draft(denoise, canvas, plan)
        times = grid_times(self.grid, self.steps)
        step = reveal_steps(draft.uniforms("reveal").cpu(), plan.schedule, times)
        return in_turn(draft, times[step], lambda t: t)


@SAMPLERS.register("first_hitting")
@dataclass(frozen=True)
class FirstHitting(Sampler):
    """The reverse process in continuous time, one token a call, each at the time it is first revealed."""

    exact = True

    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """A token is still masked at t with probability (1 - alpha_t) / (1 - alpha_1): u, solved for t."""
        draft = Draft(denoise, canvas, plan)
        end = torch.ones(1, dtype=torch.float64)
        masked_at_the_end = 1 - plan.schedule.alpha(end).detach()
        u = draft.uniforms("reveal").cpu()
        return in_turn(draft, u, lambda u: plan.schedule.inverse(1 - u * masked_at_the_end))


def in_turn(draft: Draft, when: Uniforms, clock: Callable[[Times], Times]) -> Iterator[Frame]:
    """Reveals the tokens of each row from the largest `when` down, equal ones together, at time clock(when).

    Rows go through their own times side by side: what a row becomes depends on its seed alone, and the
    batch is done after as many rounds as its busiest row needs.
    """
    uniforms = draft.uniforms("token")
    when = when.where(draft.canvas.open.cpu(), DONE)
    while True:
        now = when.amax(1)
        if not (now > DONE).any():
            return
        places = (when == now[:, None]) & (now > DONE)[:, None]
        yield draft.reveal(places.to(draft.z.device), clock(now.clamp(min=0)).detach(), uniforms)
        when = when.masked_fill(places, DONE)


def reveal_steps(
    u: Float64[Tensor, "rows length"], schedule: Schedule, grid: Float64[Tensor, "times"]
) -> Int[Tensor, "rows length"]:
    """The step (from grid[i] to grid[i + 1]) in which each token of the reverse process is revealed.

    A token that is masked at t survives to s with probability (1 - alpha_s) / (1 - alpha_t), so it is
    revealed by the end of step i with probability 1 - (1 - alpha_s) / (1 - alpha_1); the last step
    reveals all that is left.
    """
    alpha = schedule.alpha(grid).detach()
    revealed = 1 - (1 - alpha[1:]) / (1 - alpha[0])
    revealed[-1] = 1.0
    return torch.searchsorted(revealed, u, right=True)
