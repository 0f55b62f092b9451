"""Forward process q(z_t | x) with masks, and its reverse step."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.shapes import PerToken


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
