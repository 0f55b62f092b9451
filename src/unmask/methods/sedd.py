"""SEDD with an absorbing state (arXiv 2310.16834): the network models probability ratios."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.backbones.layers.state import State
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.nelbo import score_entropy
from unmask.diffusion.parameterization import sedd_log_score, sedd_offset
from unmask.methods.compute.source_denoiser import SourceDenoiser
from unmask.methods.masked_diffusion import LARGEST_SIGMA, MaskedDiffusion
from unmask.methods.method import METHODS
from unmask.shapes import At, LogProbabilities, Tokens


@METHODS.register("sedd")
class SEDD(MaskedDiffusion):
    """SEDD: learns the concrete score by score entropy, with a time-conditioned network."""

    capabilities = replace(MaskedDiffusion.capabilities, noise_level=True)

    @dataclass(frozen=True)
    class Config:
        pass

    def token_loss(self, total: Tensor, chosen: Tensor, weight: Tensor, *inputs: Tensor) -> Tensor:
        (sigma,) = inputs
        offset = sedd_offset(sigma, self.vocabulary.size)
        return weight * score_entropy(chosen[:, 0] - offset, total - offset, sigma)

    def loss_inputs(self, t: Tensor) -> list[Tensor]:
        return [self.schedule.sigma_prime(t), self.schedule.sigma(t)]

    def log_score(
        self, z_t: Tokens, t: Float[Tensor, "rows"], at: At, state: State | None = None
    ) -> Float[Tensor, "tokens vocabulary"]:
        """The network's log score: log of p(token) / p(current token) at chosen positions.

        Args:
            z_t: Token ids with masks.
            t: Time of each row.
            at: Rows and columns to score.
            state: Encoded sources, if the network has an encoder.

        Returns:
            Log scores over the vocabulary.
        """
        with self.arithmetic():
            h = self.backbone.features(z_t, self.condition(t, z_t.device), state=state)[at]
            logits = self.backbone.logits(h)
        sigma = self.schedule.sigma(t.double().cpu()).detach().clamp(max=LARGEST_SIGMA)
        sigma_at = sigma.to(z_t.device, torch.float32)[at[0]]
        return sedd_log_score(logits.float(), z_t[at], sigma_at)

    def denoiser(self) -> "ScoreDenoiser":
        return ScoreDenoiser(self, super().denoiser())


@dataclass(frozen=True)
class ScoreDenoiser:
    """A denoiser with a `log_score` method, which analytic sampling calls."""

    method: SEDD
    log_x_theta: Denoiser

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        return self.log_x_theta(z_t, t, at)

    def log_score(
        self, z_t: Tokens, t: Float[Tensor, "rows"], at: At
    ) -> Float[Tensor, "tokens vocabulary"]:
        inner = self.log_x_theta
        state = inner.encoded(z_t) if isinstance(inner, SourceDenoiser) else None
        return self.method.log_score(z_t, t, at, state)

    def log_lengths(self, z_t: Tokens) -> Float[Tensor, "rows lengths"]:
        """Log-probabilities of the length of each target, from the length head of the network."""
        assert isinstance(self.log_x_theta, SourceDenoiser)
        return self.log_x_theta.log_lengths(z_t)

    def up_to(self, tokens: int) -> "ScoreDenoiser":
        """A denoiser of targets with at most this many tokens, EOS included."""
        assert isinstance(self.log_x_theta, SourceDenoiser)
        return replace(self, log_x_theta=self.log_x_theta.up_to(tokens))
