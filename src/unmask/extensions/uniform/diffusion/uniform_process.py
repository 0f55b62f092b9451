"""Forward process q(z_t | x) with uniform tokens in place of masks, and its reverse step."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser

Distributions = Float[Tensor, "tokens vocabulary"]


@dataclass(frozen=True)
class UniformProcess:
    """q(z_t | x) = Cat(alpha_t x + (1 - alpha_t) / N): uniform tokens replace tokens,
    and MASK never occurs.

    The N states are the ids of the vocabulary without MASK.
    """

    size: int  # of the vocabulary, with MASK
    mask_id: int

    @property
    def states(self) -> int:
        """N, the number of tokens without MASK."""
        return self.size - 1

    def tokens(self, uniforms: Float[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        """Uniform tokens, from one number in [0, 1) each."""
        token = (uniforms * self.states).long()
        return token + (token >= self.mask_id)

    def marginal(
        self, mu: Distributions, alpha: Float[Tensor, "tokens"], noise: Float[Tensor, "tokens"]
    ) -> Distributions:
        """q(z_t | mu) = alpha mu + noise / N, with noise = 1 - alpha; not 0 at MASK."""
        return alpha[:, None] * mu + noise[:, None] / self.states

    def log_posterior(
        self,
        mu: Distributions,
        z_t: Int[Tensor, "tokens"],
        alpha_s: Float[Tensor, ""],
        alpha_t: Float[Tensor, ""],
    ) -> Distributions:
        """log of q(z_t | z_s) q(z_s | mu) / q(z_t | mu), the reverse step of D3PM and UDLM.

        It is exact if mu is the distribution of x given the other tokens of z_t (leave one out).
        """
        kept = alpha_t / alpha_s
        levels = (level.expand(len(mu)).to(mu) for level in (alpha_s, 1 - alpha_s))
        log_p = self.marginal(mu, *levels).log()
        stays = torch.log1p(kept * self.states / (1 - kept)).to(mu)  # q(z_t | z_t) / q(z_t | other)
        log_p = log_p.scatter_add(1, z_t[:, None], stays.expand(len(mu), 1))
        log_p[:, self.mask_id] = -torch.inf
        return log_p.log_softmax(-1)


@runtime_checkable
class UniformDenoiser(Denoiser, Protocol):
    """A denoiser of texts with uniform tokens: log of the distribution of a token given the others."""

    @property
    def process(self) -> UniformProcess:
        """The forward process."""
