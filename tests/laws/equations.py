"""The paper's equations in full, over the whole vocabulary:
the code that runs is held against them.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.diffusion.parameterization import Scores, Sigma, log_expm1, subs_log_probs

Alpha = Float[Tensor, "*batch"]
Probabilities = Float[Tensor, "*batch vocabulary"]


def posterior(
    z_t: Int[Tensor, "*batch"], x_theta: Probabilities, alpha_s: Alpha, alpha_t: Alpha, mask_id: int
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


def log_x_theta(
    logits: Scores,
    z_t: Int[Tensor, "*batch"],
    mask_id: int,
    zero_masking: bool = True,
    carry_over: bool = True,
) -> Scores:
    """log x_theta: SUBS with both switches on, D3PM's mean parameterization with both off."""
    if zero_masking:
        log_probabilities = subs_log_probs(logits, mask_id)
    else:
        log_probabilities = torch.log_softmax(logits, -1)
    if carry_over:
        kept = torch.nn.functional.one_hot(z_t, logits.shape[-1]).to(logits).log()
        log_probabilities = torch.where((z_t == mask_id)[..., None], log_probabilities, kept)
    return log_probabilities


def score_to_mean(log_score: Scores, sigma: Sigma, mask_id: int) -> Scores:
    """log x_theta of a masked token from its log score: s_y = x_y alpha / (1 - alpha),
    renormalised.
    """
    return subs_log_probs(log_score + log_expm1(sigma)[..., None], mask_id)


def mean_to_score(log_mean: Scores, sigma: Sigma, mask_id: int) -> Scores:
    """The log score of a masked token that x_theta implies; MASK against itself is 1."""
    at_mask = torch.arange(log_mean.shape[-1], device=log_mean.device) == mask_id
    return (log_mean - log_expm1(sigma)[..., None]).masked_fill(at_mask, 0.0)
