"""What a network's scores mean: SUBS, D3PM's mean, SEDD's score, and how they convert."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

Scores = Float[Tensor, "*batch vocabulary"]
Sigma = Float[Tensor, "*batch"]


def zero_masked(scores: Scores, mask_id: int) -> Scores:
    """Scores, or a head's bias, with MASK at minus infinity: <x_theta, m> = 0."""
    at_mask = torch.arange(scores.shape[-1], device=scores.device) == mask_id
    return scores.masked_fill(at_mask, -math.inf)


def subs_log_probs(logits: Scores, mask_id: int, dtype: torch.dtype | None = None) -> Scores:
    """log x_theta of masked tokens under SUBS, where carry-over has nothing to do."""
    return torch.log_softmax(zero_masked(logits, mask_id), -1, dtype)


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


def log_expm1(sigma: Sigma) -> Sigma:
    """log(e^sigma - 1) = log((1 - alpha) / alpha)."""
    return sigma + torch.log(-torch.expm1(-sigma))


def sedd_offset(sigma: Sigma, vocabulary: int) -> Sigma:
    """What SEDD takes off the logits to scale them to a ratio of probabilities."""
    return log_expm1(sigma) + math.log(vocabulary - 1)


def sedd_log_score(logits: Scores, z_t: Int[Tensor, "*batch"], sigma: Sigma) -> Scores:
    """SEDD's log score: scaled by sigma, zero at z_t itself."""
    log_score = logits - sedd_offset(sigma, logits.shape[-1])[..., None]
    return log_score.scatter(-1, z_t[..., None], 0.0)


def score_to_mean(log_score: Scores, sigma: Sigma, mask_id: int) -> Scores:
    """log x_theta of a masked token from its log score: s_y = x_y alpha / (1 - alpha), renormalised."""
    return subs_log_probs(log_score + log_expm1(sigma)[..., None], mask_id)


def mean_to_score(log_mean: Scores, sigma: Sigma, mask_id: int) -> Scores:
    """The log score of a masked token that x_theta implies; MASK against itself is 1."""
    at_mask = torch.arange(log_mean.shape[-1], device=log_mean.device) == mask_id
    return (log_mean - log_expm1(sigma)[..., None]).masked_fill(at_mask, 0.0)
