"""The forward process: clean tokens turn into MASK one by one."""

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
