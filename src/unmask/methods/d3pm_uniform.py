"""D3PM with uniform transitions (arXiv 2107.03006): a T-step bound of diffusion with uniform tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from unmask.diffusion.nelbo import step_alphas, uniform_step_divergence
from unmask.errors import UnmaskError
from unmask.methods.method import METHODS
from unmask.methods.uniform_diffusion import UniformDiffusion


@METHODS.register("d3pm_uniform")
class D3PMUniform(UniformDiffusion):
    """D3PM with uniform tokens in T steps: its samplers can correct written tokens."""

    @dataclass(frozen=True)
    class Config:
        steps: int = 1000

        def __post_init__(self) -> None:
            if self.steps < 1:
                raise UnmaskError(f"steps must be 1 or more, not {self.steps}")

    def loss_inputs(self, t: Float64[Tensor, "rows"]) -> list[Float64[Tensor, "rows"]]:
        alpha_s, alpha_t = step_alphas(self.schedule, t, self.steps)
        alpha_s = alpha_s.where(
            t > 1.5 / self.steps, 1.0
        )  # the first step starts at the text itself
        levels = [alpha_s, alpha_t, 1 - alpha_s, 1 - alpha_t, (alpha_s - alpha_t) / alpha_s]
        return [torch.full_like(t, self.steps), *levels]

    def token_loss(
        self,
        mu: Float[Tensor, "tokens vocabulary"],
        x: Int[Tensor, "tokens"],
        z_t: Int[Tensor, "tokens"],
        *inputs: Float[Tensor, "tokens"],
    ) -> Float[Tensor, "tokens"]:
        steps, alpha_s, alpha_t, noise_s, noise_t, changed = inputs
        alphas, noises = (alpha_s, alpha_t), (noise_s, noise_t)
        return steps * uniform_step_divergence(self.process, mu, x, z_t, alphas, noises, changed)
