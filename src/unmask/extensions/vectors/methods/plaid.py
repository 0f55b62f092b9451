"""Plaid (arXiv 2305.18619): learned codes of unit norm and a learned noise schedule."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.diffusion.parameterization import zero_masked
from unmask.errors import UnmaskError
from unmask.extensions.vectors.diffusion.gaussian import LearnedGamma, StepNoise, signal
from unmask.extensions.vectors.methods.latent_diffusion import (
    LatentBatch,
    LatentDiffusion,
    Terms,
)
from unmask.extensions.vectors.methods.vector_method import (
    Outputs,
    TokenLogProbs,
    Vectors,
    chosen,
    full_precision,
)
from unmask.methods.method import METHODS, ParameterGroup
from unmask.options import Checked, option
from unmask.randomness import RowStream
from unmask.shapes import Valid


@METHODS.register("plaid")
class Plaid(LatentDiffusion):
    """Gaussian diffusion of learned codes, trained with its bound, with a learned noise schedule."""

    noise_schedule = "learned"
    gammas: LearnedGamma

    @dataclass(frozen=True)
    class Config(Checked):
        width: int = option(16, ge=1)  # of a code
        gamma_first: float = -3.0  # initial noise level at t = 0
        gamma_last: float = 6.0  # initial noise level at t = 1
        degree: int = 8  # of the polynomial between them
        output_prior: float = 1.0  # weight of log p(z_t | token) in the logits
        # share of the rows that get a first estimate, in training
        self_conditioning: float = option(0.25, ge=0, le=1)
        # share of the rows that train the reconstruction term
        reconstructed: float = option(0.125, gt=0, lt=1)
        code_lr: float = 1.0  # factor on the learning rate, of the codes
        schedule_lr: float = 1.0  # factor on the learning rate, of the noise schedule

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.gamma_first >= self.gamma_last:
                raise UnmaskError(
                    f"gamma_first {self.gamma_first} and gamma_last {self.gamma_last} are out of "
                    "order: choose gamma_first < gamma_last"
                )

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.parameter_groups = (
            ParameterGroup("codebook.", config.code_lr, 0.0),
            ParameterGroup("gammas.", config.schedule_lr, 0.0),
        )

    def gamma_schedule(self) -> LearnedGamma:
        config = self.config
        return LearnedGamma(config.gamma_first, config.gamma_last, config.degree)

    def build_codes(self) -> nn.Module:
        return nn.Embedding(self.vocabulary.size, self.config.width)

    @property
    def codes(self) -> Float[Tensor, "vocabulary width"]:
        return F.normalize(super().codes, dim=-1)

    def outputs(self, width: int) -> int:
        return self.vocabulary.size

    def predict(
        self, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors, valid: Valid | None = None
    ) -> Outputs:
        """log p(token | z_t): the network's logits plus log p(z_t | token), which needs no learning."""
        logits = super().predict(z, gamma, guess, valid)
        alpha, sigma = signal(gamma[:, None, None])
        with full_precision(z):
            # scaled before the product, which is much larger than z
            near = (self.config.output_prior * alpha / sigma**2 * z) @ self.codes.to(z.dtype).t()
            return zero_masked(logits + near, self.vocabulary.mask_id).log_softmax(-1)

    def estimate(self, prediction: Outputs) -> Vectors:
        with full_precision(prediction):
            return prediction.exp() @ self.codes.to(prediction.dtype)

    def log_tokens(self, prediction: Outputs) -> TokenLogProbs:
        return prediction

    def training_noise(self, stream: RowStream, valid: Valid) -> StepNoise:
        """Noise of the bound, with some rows at t = 0, which train the reconstruction term instead."""
        noise, share = self.uniform_noise(stream), self.config.reconstructed
        start = stream.uniform("start", 1)[:, 0] < share
        importance = torch.where(start, noise.importance / share, noise.importance / (1 - share))
        return replace(noise, t=noise.t.where(~start, 0.0), start=start, importance=importance)

    def divergence(self, batch: LatentBatch) -> Float[Tensor, "rows length"]:
        """exp(-gamma) gamma' / 2 times the squared error, at one time of each row."""
        t = batch.by_row(batch.noise.t)[:, 0]
        gamma, slope = self.gammas.gamma_and_slope(t)
        weight = batch.by_row(batch.noise.importance) * (slope * torch.exp(-gamma))[:, None] / 2
        return weight * self.squared_error(batch, gamma)

    def training_terms(self, batch: LatentBatch) -> Terms:
        """The bound, in one pass of the network: a row has a diffusion or a reconstruction term."""
        noise, codes = batch.noise, batch.codes
        t, start = batch.by_row(noise.t)[:, 0], noise.start[:, None]
        losses: list[Tensor] = []  # of the rows, as soon as they are known

        def squared(gradient: Tensor) -> Tensor:
            """The gradient of loss^2: the shape of the schedule minimises the variance of the bound."""
            return gradient * 2 * losses[0].to(gradient)

        gamma, slope = self.gammas.gamma_and_slope(t, squared if torch.is_grad_enabled() else None)
        prediction = self.self_conditioned(batch.noised(gamma), gamma, batch)
        error = (codes - self.estimate(prediction)).square().sum(-1)
        importance = batch.by_row(noise.importance)
        diffusion = (slope * torch.exp(-gamma))[:, None] / 2 * error
        counted = batch.scored & ~start
        losses.append((diffusion.detach() * counted).sum(1) / counted.sum(1).clamp(min=1))
        return {
            "diffusion": (importance * diffusion).where(~start, 0.0),
            "prior": self.prior(batch),
            "reconstruction": (-importance * chosen(prediction, batch.x)).where(start, 0.0),
        }
