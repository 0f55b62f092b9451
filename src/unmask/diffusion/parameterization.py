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
