"""Divergences of the bounds with uniform tokens: those of rates, of steps, and the prior."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unmask.diffusion.schedule import Times


@dataclass(frozen=True)
class UniformMarginals:
    """q_t(j | mu) = alpha mu_j + noise / N of a token, relative to noise / N: 1 + ratio mu_j."""

    states: int  # N
    ratio: Float[Tensor, "tokens"]  # N alpha / noise
    log_sum: Float[Tensor, "tokens"]  # the sum of log(1 + ratio mu_j) over all tokens j
    mu_x: Float[Tensor, "tokens"]
    mu_z: Float[Tensor, "tokens"]  # at z_t

    @property
    def at_x(self) -> Float[Tensor, "tokens"]:
        """The relative marginal of x."""
        return 1 + self.ratio * self.mu_x

    @property
    def at_z(self) -> Float[Tensor, "tokens"]:
        """The relative marginal of z_t."""
        return 1 + self.ratio * self.mu_z

    @property
    def logs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The sum over all tokens, the values at x and z_t under mu, and the value at x given x."""
        log_x, log_z = (torch.log1p(self.ratio * mu) for mu in (self.mu_x, self.mu_z))
        return self.log_sum, log_x, log_z, torch.log1p(self.ratio)


def uniform_rate_divergence(
    marginals: UniformMarginals,
    same: Bool[Tensor, "tokens"],
    rate: Float[Tensor, "tokens"],
    noise: Float[Tensor, "tokens"],
) -> Float[Tensor, "tokens"]:
    """UDLM's integrand: divergence of the reverse rates given x from those given mu.

    The rate from z_t to j is rate / N times r(j) = q_t(j) / q_t(z_t), with rate = -alpha' / alpha
    and noise = 1 - alpha. The divergence is the sum over j of r_mu - r_x + r_x log(r_x / r_mu).
    `same` is True if z_t is x.
    """
    count, (total, log_x, log_z, high) = marginals.states, marginals.logs
    low = torch.exp(-high)  # r_x of every j, if z_t is x
    reverse = count / (noise * marginals.at_z) - 1  # the sum of r_mu
    others = total - log_z  # the sum over j that are not z_t
    unchanged = reverse + low * ((count - 1) * (log_z - high - 1) - others)
    # the token x has r_x = 1 / low, and the others have r_x = 1
    replaced = reverse + (count - 2) * (log_z - 1) - (others - log_x)
    replaced = replaced + (high + log_z - log_x - 1) / low
    return rate / count * torch.where(same, unchanged, replaced)


def uniform_step_divergence(
    marginals: UniformMarginals,
    same: Bool[Tensor, "tokens"],
    alphas: tuple[Float[Tensor, "tokens"], Float[Tensor, "tokens"]],
    noises: tuple[Float[Tensor, "tokens"], Float[Tensor, "tokens"]],
    changed: Float[Tensor, "tokens"],
) -> Float[Tensor, "tokens"]:
    """KL(q(z_s | z_t, x) || p(z_s | z_t)) of D3PM with uniform tokens.

    `marginals` are those of s. `alphas` and `noises` are alpha and 1 - alpha at s and t; `changed`
    is 1 - alpha_t / alpha_s. At alpha_s = 1 the divergence is -log p(x | z_t),
    the reconstruction term.
    """
    count, (total, log_x, log_z, log_high) = marginals.states, marginals.logs
    (alpha_s, alpha_t), (noise_s, noise_t) = alphas, noises
    moved = changed / count  # q(z_t | j) of a token j that is not z_t
    low, high = (
        noise_s / count,
        alpha_s + noise_s / count,
    )  # q_s(j | x) of j that is not x, and of x
    evidence = torch.where(same, alpha_t, 0.0) + noise_t / count  # q_t(z_t | x)
    evidence_mu = alpha_t * marginals.mu_z + noise_t / count  # q_t(z_t | mu)
    offset = evidence.log() - evidence_mu.log()
    stay = 1 - changed + moved  # q(z_t | z_t)
    at_x = torch.where(same, stay, moved) * high / evidence * _excess(log_high - log_x - offset)
    at_z = stay * low / evidence * _excess(-log_z - offset)
    at_z = at_z.where(~same, 0.0)
    number = torch.where(same, count - 1, count - 2)  # of the other tokens
    rest = 1 - low * marginals.at_x - torch.where(same, 0.0, low * marginals.at_z)
    ratios = -number * offset - (total - log_x - torch.where(same, 0.0, log_z))
    others = moved * rest / evidence_mu + moved * low / evidence * (ratios - number)
    return at_x + at_z + others


def uniform_prior(states: int, alpha: Times) -> Times:
    """KL(q(z_1 | x) || uniform) of a token, from alpha(1) and the number of states."""
    high = alpha + (1 - alpha) / states
    return torch.xlogy(high, high * states) + (1 - high) * torch.log1p(-alpha)


def _excess(log_ratio: Tensor) -> Tensor:
    """p / q - 1 - log(p / q) for log(q / p): a term of a divergence that is never negative.

    A sum of q log(q / p) would lose the small divergence of a step to rounding.
    """
    return torch.expm1(-log_ratio) + log_ratio
