"""T-step ancestral sampling, position first: when a token is revealed does not depend on the network."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from unmask.diffusion.schedule import Schedule
from unmask.randomness import row_uniforms
from unmask.samplers.base import SAMPLERS, Canvas, Denoise, Frame, Plan, Sampler, check_steps

NEVER = torch.iinfo(torch.long).max


@SAMPLERS.register("ancestral")
@dataclass(frozen=True)
class Ancestral(Sampler):
    """The paper's T-step reverse process, exactly, without a network call for steps that reveal nothing."""

    exact = True
    steps: int = 128

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """Draws every token's step first; then each row visits only the steps in which it reveals something.

        Rows go through their own steps, at their own times, side by side: what a row becomes depends
        on its seed alone, and the batch is done after as many rounds as its busiest row needs.
        """
        z = canvas.tokens.clone()
        length = z.shape[1]
        grid = torch.linspace(1, 0, self.steps + 1, dtype=torch.float64)
        step = reveal_steps(row_uniforms(plan.seeds, "reveal", length), plan.schedule, grid)
        step = step.to(z.device).masked_fill(~canvas.open, NEVER)
        token_uniforms = row_uniforms(plan.seeds, "token", length).to(_doubles_on(z.device))
        calls = torch.zeros(len(z), dtype=torch.long)
        while True:
            next_step = step.min(1).values  # of each row
            active = (next_step < NEVER).nonzero()[:, 0]
            if not len(active):
                return
            revealed = step[active] == next_step[active, None]
            row, column = revealed.nonzero(as_tuple=True)
            t = grid[next_step[active].cpu()]
            rows, columns = active[row], column
            log_probabilities = denoise(z[active], t, (row, column))
            uniforms = token_uniforms[
                rows.to(token_uniforms.device), columns.to(token_uniforms.device)
            ]
            z[rows, columns] = plan.choose(log_probabilities, uniforms)
            step[rows, columns] = NEVER
            calls[active.cpu()] += 1
            changed = torch.zeros_like(canvas.open)
            changed[rows, columns] = True
            yield Frame(z.clone(), changed, calls.clone())


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


def _doubles_on(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "mps" else device
