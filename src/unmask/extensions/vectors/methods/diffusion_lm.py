"""Diffusion-LM (arXiv 2205.14217): learned codes, a rounding loss and a simple squared error."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.diffusion.parameterization import subs_log_probs, zero_masked
from unmask.extensions.vectors.diffusion.gaussian import SquareRoot, StepNoise, Variance, signal
from unmask.extensions.vectors.methods.latent_diffusion import (
    LatentBatch,
    LatentDiffusion,
    Terms,
)
from unmask.extensions.vectors.methods.vector_method import (
    Outputs,
    TokenLogProbs,
    Vectors,
    full_precision,
)
from unmask.methods.method import METHODS, ParameterGroup
from unmask.options import Checked, option
from unmask.randomness import RowStream
from unmask.shapes import Valid

VARIANCES = ("posterior", "released")


@METHODS.register("diffusion_lm")
class DiffusionLM(LatentDiffusion):
    """Gaussian diffusion of learned codes with a square-root schedule, trained without the bound's weights."""

    noise_schedule = "square root"
    loss_weight = "simple"
    sampler = "latent_clamped"
    codebook: nn.Linear

    @dataclass(frozen=True)
    class Config(Checked):
        width: int = option(16, ge=1)  # of a code
        steps: int = option(2000, ge=1)  # T of the bound
        # of the steps of the bound: posterior | released
        variance: str = option("posterior", among=VARIANCES)
        code_lr: float = 1.0  # factor on the learning rate, of the codes
        # up to this time, steps of the bound use the code nearest to the estimate
        clamped: float = option(0.0, ge=0, le=1)

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.variance = cast(Variance, config.variance)
        self.parameter_groups = (ParameterGroup("codebook.", config.code_lr, 0.0),)

    def gamma_schedule(self) -> SquareRoot:
        return SquareRoot()

    def build_codes(self) -> nn.Linear:
        """The rounding layer, whose weight holds the codes."""
        codes = nn.Linear(self.config.width, self.vocabulary.size)
        nn.init.normal_(codes.weight)
        nn.init.zeros_(codes.bias)
        return codes

    def step_estimate(self, prediction: Outputs, batch: LatentBatch) -> Vectors:
        """The estimate, clamped to the nearest code at times up to `clamped`, as the paper's sampler does.

        At little noise, the small errors of a plain estimate cost most of the bound. At much noise, a
        clamped estimate is worse than a plain one.
        """
        if not self.config.clamped:
            return prediction
        late = batch.by_row(batch.noise.t)[..., None] <= self.config.clamped
        codes = self.codes.detach().to(prediction)
        with full_precision(prediction):
            near = prediction @ codes.t() - codes.square().sum(-1) / 2
        nearest = zero_masked(near, self.vocabulary.mask_id).argmax(-1)
        return torch.where(late, codes[nearest], prediction)

    def log_tokens(self, prediction: Outputs) -> TokenLogProbs:
        return self._round(prediction)

    def read(self, z_0: Vectors, gamma_0: Float[Tensor, "rows"]) -> TokenLogProbs:
        """The rounding p(token | z_0), by the inner product with each code."""
        return self._round(z_0)

    def training_noise(self, stream: RowStream, valid: Valid) -> StepNoise:
        return self.uniform_noise(stream)

    def training_terms(self, batch: LatentBatch) -> Terms:
        """Squared error of the estimate, rounding loss and squared mean of z_1, per dimension."""
        width = batch.codes.shape[-1]
        gamma = batch.gamma_of(self.gammas, batch.noise.t)
        alpha_1, _ = signal(batch.gamma_of(self.gammas, torch.ones_like(batch.noise.t)))
        return {
            "diffusion": self.squared_error(batch, gamma) / width,
            "prior": (alpha_1[:, None, None] * batch.codes).square().mean(-1),
            "reconstruction": self.reconstruction(batch),
        }

    def _round(self, vectors: Vectors) -> TokenLogProbs:
        with full_precision(vectors):
            weight, bias = self.codebook.weight.to(vectors), self.codebook.bias.to(vectors)
            logits = nn.functional.linear(vectors, weight, bias)
        return subs_log_probs(logits, self.vocabulary.mask_id)
