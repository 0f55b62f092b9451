"""One token at a time, in reading order."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from unmask.randomness import row_uniforms
from unmask.samplers.base import SAMPLERS, Canvas, Denoise, Frame, Plan, Sampler


@SAMPLERS.register("left_to_right")
@dataclass(frozen=True)
class LeftToRight(Sampler):
    """One token at a time in reading order: the only order of an autoregressive model (KV cache)."""

    exact = True

    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        z = canvas.tokens.clone()
        is_open = canvas.open
        uniforms = row_uniforms(plan.seeds, "token", z.shape[1])
        calls = torch.zeros(len(z), dtype=torch.long)
        for column in is_open.any(0).nonzero()[:, 0].tolist():
            rows = is_open[:, column].nonzero()[:, 0]
            # the share of the canvas that is still masked is the diffusion time of this state
            t = plan.schedule.inverse(1 - (z == canvas.mask_id).double().mean(1).cpu())
            log_probabilities = denoise(z, t, (rows, torch.full_like(rows, column)))
            z[rows, column] = plan.choose(log_probabilities, uniforms[rows.cpu(), column])
            calls[rows.cpu()] += 1
            changed = torch.zeros_like(is_open)
            changed[rows, column] = True
            yield Frame(z.clone(), changed, calls.clone())
