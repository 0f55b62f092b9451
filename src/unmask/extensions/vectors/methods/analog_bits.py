"""Analog Bits (arXiv 2208.04202): the bits of the token's id as real numbers, with self-conditioning."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.diffusion.parameterization import subs_log_probs
from unmask.extensions.vectors.diffusion.gaussian import CosineSignal, StepNoise, signal
from unmask.extensions.vectors.methods.latent_diffusion import (
    LatentBatch,
    LatentDiffusion,
    Terms,
)
from unmask.extensions.vectors.methods.vector_method import (
    FixedCodes,
    Outputs,
    TokenLogProbs,
    Vectors,
    full_precision,
)
from unmask.methods.method import METHODS
from unmask.options import Checked, option
from unmask.randomness import RowStream
from unmask.shapes import Valid

LARGEST_BIT = 1 - 1e-6  # of an estimate, so that each token keeps a probability


@METHODS.register("analog_bits")
class AnalogBits(LatentDiffusion):
    """Gaussian diffusion of the bits of token ids, each -1 or 1, trained with a squared error."""

    noise_schedule = "cosine"
    loss_weight = "simple"
    sampler = "latent_ddim"

    @dataclass(frozen=True)
    class Config(Checked):
        steps: int = option(1000, ge=1)  # T of the bound
        # share of the rows that get a first estimate, in training
        self_conditioning: float = option(0.5, ge=0, le=1)

    def gamma_schedule(self) -> CosineSignal:
        return CosineSignal()

    def build_codes(self) -> FixedCodes:
        size = self.vocabulary.size
        width = max(1, (size - 1).bit_length())
        bits = torch.arange(size)[:, None] >> torch.arange(width) & 1
        return FixedCodes(2.0 * bits - 1)

    def estimate(self, prediction: Outputs) -> Vectors:
        return prediction.clamp(-1, 1)

    def log_tokens(self, prediction: Outputs) -> TokenLogProbs:
        """The tokens if a bit is 1 with probability (1 + estimate) / 2, independently of the others."""
        return self._by_bits(2 * torch.atanh(prediction.clamp(-LARGEST_BIT, LARGEST_BIT)))

    def read(self, z_0: Vectors, gamma_0: Float[Tensor, "rows"]) -> TokenLogProbs:
        """p(token | z_0) by Bayes' rule, if all tokens are equally likely."""
        alpha, sigma = signal(gamma_0[:, None, None])
        return self._by_bits(2 * alpha / sigma**2 * z_0)

    def training_noise(self, stream: RowStream, valid: Valid) -> StepNoise:
        return self.uniform_noise(stream)

    def training_terms(self, batch: LatentBatch) -> Terms:
        """Squared error of the estimate, per bit."""
        gamma = batch.gamma_of(self.gammas, batch.noise.t)
        prediction = self.self_conditioned(batch.noised(gamma), gamma, batch)
        return {"diffusion": F.mse_loss(prediction, batch.codes, reduction="none").mean(-1)}

    def _by_bits(self, logits: Vectors) -> TokenLogProbs:
        """The distribution over tokens of independent bits with these logits."""
        with full_precision(logits):
            scores = logits @ self.codes.to(logits).t() / 2
        return subs_log_probs(scores, self.vocabulary.mask_id)
