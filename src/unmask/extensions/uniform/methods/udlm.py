"""UDLM (arXiv 2412.10193): diffusion with uniform tokens in continuous time."""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Float64
from torch import Tensor

from unmask.diffusion.time_sampler import Stratified
from unmask.extensions.uniform.diffusion.uniform_divergence import (
    UniformMarginals,
    uniform_rate_divergence,
)
from unmask.extensions.uniform.methods.uniform_diffusion import (
    LEAST_NOISE,
    UniformDiffusion,
    UniformNoise,
)
from unmask.methods.method import METHODS
from unmask.options import Checked, option
from unmask.randomness import RowStream
from unmask.shapes import Valid


@METHODS.register("udlm")
class UDLM(UniformDiffusion):
    """Diffusion with uniform tokens in continuous time: its samplers can correct written tokens."""

    @dataclass(frozen=True)
    class Config(Checked):
        # smallest time of training; smaller ones add variance to the gradient
        t_min: float = option(1e-3, ge=0, lt=1)

    def training_noise(self, stream: RowStream, valid: Valid) -> UniformNoise:
        """Noise without the smallest times.
        The bound covers all times and has no reconstruction term.
        """
        return self._draw(stream, valid, Stratified(self.config.t_min))

    def loss_inputs(self, t: Float64[Tensor, "rows"]) -> list[Float64[Tensor, "rows"]]:
        alpha = self.schedule.alpha(t)
        noise = (1 - alpha).clamp(min=LEAST_NOISE)
        return [self.process.states * alpha / noise, self.schedule.sigma_prime(t), noise]

    def token_loss(
        self,
        marginals: UniformMarginals,
        same: Bool[Tensor, "tokens"],
        *inputs: Float[Tensor, "tokens"],
    ) -> Float[Tensor, "tokens"]:
        return uniform_rate_divergence(marginals, same, *inputs)
