"""Forward processes q(z_t | x) with masks or uniform tokens, and their reverse steps."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.shapes import PerToken

Distributions = Float[Tensor, "tokens vocabulary"]


def masked_tokens(
    uniforms: Float[Tensor, "rows length"],
    alpha_t: Float[Tensor, "rows"],
    valid: Bool[Tensor, "rows length"],
) -> Bool[Tensor, "rows length"]:
    """True at tokens that are masked at time t, from one uniform per token; False at padding."""
    return (uniforms < 1 - alpha_t[:, None]) & valid


def q_sample(
    x: Int[Tensor, "rows length"], masked: Bool[Tensor, "rows length"], mask_id: int
) -> Int[Tensor, "rows length"]:
    """z_t ~ q(z_t | x) = Cat(alpha_t x + (1 - alpha_t) m): x with MASK where `masked` is True."""
    return x.masked_fill(masked, mask_id)


def unmask_probability(alpha_s: PerToken, alpha_t: PerToken) -> PerToken:
    """Probability that a token masked at t is revealed by s < t (Eq. 7 of arXiv 2406.07524)."""
    return (alpha_s - alpha_t) / (1 - alpha_t)


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
