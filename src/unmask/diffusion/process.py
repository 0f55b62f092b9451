"""The forward process q(z_t | x), and its reverse step p(z_s | z_t)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def masked_tokens(
    uniforms: Float[Tensor, "rows length"],
    alpha_t: Float[Tensor, "rows"],
    valid: Bool[Tensor, "rows length"],
) -> Bool[Tensor, "rows length"]:
    """Which tokens are masked at time t, given one uniform a token; padding never is."""
    return (uniforms < 1 - alpha_t[:, None]) & valid


def q_sample(
    x: Int[Tensor, "rows length"], masked: Bool[Tensor, "rows length"], mask_id: int
) -> Int[Tensor, "rows length"]:
    """z_t ~ q(z_t | x) = Cat(alpha_t x + (1 - alpha_t) m), the draw being given."""
    return x.masked_fill(masked, mask_id)


Alpha = Float[Tensor, "*batch"]
Probabilities = Float[Tensor, "*batch vocabulary"]


def unmask_probability(alpha_s: Alpha, alpha_t: Alpha) -> Alpha:
    """Chance that a masked token is revealed between t and s."""
    return (alpha_s - alpha_t) / (1 - alpha_t)


def posterior(
    z_t: Int[Tensor, "*batch"],
    x_theta: Probabilities,
    alpha_s: Alpha,
    alpha_t: Alpha,
    mask_id: int,
) -> Probabilities:
    """p_theta(z_s | z_t) = q(z_s | z_t, x = x_theta); with a one-hot x_theta it is q itself.

    x_theta may have mass on MASK (D3PM's mean parameterization); with zero masking it has none.
    """
    alpha_s, alpha_t = alpha_s[..., None], alpha_t[..., None]
    m = torch.nn.functional.one_hot(z_t.new_full(z_t.shape, mask_id), x_theta.shape[-1]).to(x_theta)
    revealed = (alpha_s - alpha_t) * x_theta * (1 - m)
    stays = (1 - alpha_s + alpha_s * x_theta) * m
    total = 1 - alpha_t + alpha_t * x_theta[..., mask_id : mask_id + 1]
    kept = torch.nn.functional.one_hot(z_t, x_theta.shape[-1]).to(x_theta)
    return torch.where((z_t == mask_id)[..., None], (revealed + stays) / total, kept)
