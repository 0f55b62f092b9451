"""One step back in time: q(z_s | z_t, x) and what a model makes of it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

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
