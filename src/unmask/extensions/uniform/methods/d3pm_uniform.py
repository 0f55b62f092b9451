"""D3PM with uniform transitions (arXiv 2107.03006):
a T-step bound of diffusion with uniform tokens.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from unmask.diffusion.nelbo import step_alphas
from unmask.extensions.uniform.diffusion.uniform_divergence import (
    UniformMarginals,
    uniform_step_divergence,
)
from unmask.extensions.uniform.methods.uniform_diffusion import LEAST_NOISE, UniformDiffusion
from unmask.methods.method import METHODS
from unmask.options import Checked, option


@METHODS.register("d3pm_uniform")
class D3PMUniform(UniformDiffusion):
    """D3PM with uniform tokens in T steps: its samplers can correct written tokens."""

    @dataclass(frozen=True)
    class Config(Checked):
        steps: int = option(1000, ge=1)

    def loss_inputs(self, t: Float64[Tensor, "rows"]) -> list[Float64[Tensor, "rows"]]:
        alpha_s, alpha_t = step_alphas(self.schedule, t, self.steps)
        alpha_s = alpha_s.where(
            t > 1.5 / self.steps, 1.0
        )  # the first step starts at the text itself
        noise_s, noise_t = (1 - alpha_s).clamp(min=LEAST_NOISE), 1 - alpha_t
        ratio = self.process.states * alpha_s / noise_s
        levels = [alpha_s, alpha_t, noise_s, noise_t, (alpha_s - alpha_t) / alpha_s]
        return [ratio, torch.full_like(t, self.steps), *levels]

    def token_loss(
        self,
        marginals: UniformMarginals,
        same: Bool[Tensor, "tokens"],
        *inputs: Float[Tensor, "tokens"],
    ) -> Float[Tensor, "tokens"]:
        steps, alpha_s, alpha_t, noise_s, noise_t, changed = inputs
        alphas, noises = (alpha_s, alpha_t), (noise_s, noise_t)
        return steps * uniform_step_divergence(marginals, same, alphas, noises, changed)
