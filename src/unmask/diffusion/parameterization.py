"""Parameterizations of the network's output: SUBS and SEDD's score."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

Scores = Float[Tensor, "*batch vocabulary"]
Sigma = Float[Tensor, "*batch"]


def zero_masked(scores: Scores, mask_id: int) -> Scores:
    """Logits, or the head's bias, with minus infinity at MASK, so that <x_theta, m> = 0."""
    at_mask = torch.arange(scores.shape[-1], device=scores.device) == mask_id
    return scores.masked_fill(at_mask, -math.inf)


def subs_log_probs(logits: Scores, mask_id: int, dtype: torch.dtype | None = None) -> Scores:
    """log x_theta of masked tokens under SUBS. Carry-over concerns unmasked tokens only."""
    return torch.log_softmax(zero_masked(logits, mask_id), -1, dtype)


def log_expm1(sigma: Sigma) -> Sigma:
    """log(e^sigma - 1) = log((1 - alpha) / alpha)."""
    return sigma + torch.log(-torch.expm1(-sigma))


def sedd_offset(sigma: Sigma, vocabulary: int) -> Sigma:
    """log(e^sigma - 1) + log(V - 1), which SEDD subtracts from the logits to scale them."""
    return log_expm1(sigma) + math.log(vocabulary - 1)


def sedd_log_score(logits: Scores, z_t: Int[Tensor, "*batch"], sigma: Sigma) -> Scores:
    """SEDD's log score: logits minus the offset of sigma, and zero at z_t."""
    log_score = logits - sedd_offset(sigma, logits.shape[-1])[..., None]
    return log_score.scatter(-1, z_t[..., None], 0.0)
