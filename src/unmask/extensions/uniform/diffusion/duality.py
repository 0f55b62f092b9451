"""Duality of Gaussian diffusion and uniform tokens (Duo, arXiv 2506.10892).

A one-hot vector x of N dimensions becomes w_t = a x + s noise, with normal noise and a^2 + s^2 = 1.
The argmax z_t of w_t is x with probability alpha_t + (1 - alpha_t) / N, and else any other token.
alpha_t depends on a / s only.
"""

from functools import cache

import torch
from jaxtyping import Float, Float64, Int32, Int64
from torch import Tensor

NODES, REACH = 256, 9.0  # of the quadrature, whose error is about 1e-13
LARGEST_RATIO, ENTRIES = 12.0, 2049  # of the table of the inverse
ALMOST_ONE = 1 - 2**-24  # the largest float32 below 1
Ratios = Float64[Tensor, "rows"]


def argmax_probability(ratio: Ratios, states: int) -> Ratios:
    """P(argmax w_t = x) = integral of phi(v) Phi(ratio + v)^(N - 1) dv, with ratio = a / s."""
    return _integral(ratio, states)[0]


def diffusion_transform(ratio: Ratios, states: int) -> Ratios:
    """alpha_t of argmax w_t: (N P(argmax w_t = x) - 1) / (N - 1)."""
    return (states * argmax_probability(ratio, states) - 1) / (states - 1)


def signal_ratio(alpha: Float64[Tensor, "rows"], states: int) -> Ratios:
    """a / s at which argmax w_t has this alpha: the inverse, by a table and one Newton step."""
    ratios, alphas = _table(states)
    above = torch.searchsorted(alphas, alpha).clamp(1, ENTRIES - 1)
    low, high, step = alphas[above - 1], alphas[above], float(ratios[1])
    share = ((alpha - low) / (high - low).clamp(min=1e-300)).clamp(0, 1)
    ratio = ratios[above - 1] + share * step
    error = diffusion_transform(ratio, states) - alpha
    slope = _integral(ratio, states)[1] * states / (states - 1)
    return (ratio - (error / slope.clamp(min=1e-300)).clamp(-step, step)).clamp(min=0)


def largest_normals(
    uniforms: Float[Tensor, "*batch chosen"], count: int
) -> Float[Tensor, "*batch chosen"]:
    """The largest of `count` independent normals in falling order, exactly, from a uniform of each.

    The largest of n uniforms is u^(1/n). The next largest is that of n - 1 uniforms below it.
    """
    left = count - torch.arange(uniforms.shape[-1], device=uniforms.device)
    log_quantile = (uniforms.clamp(max=ALMOST_ONE).log() / left).cumsum(-1)
    return -torch.special.ndtri(-torch.expm1(log_quantile))  # the upper tail keeps its precision


def distinct_numbers(
    bits: Int32[Tensor, "*batch chosen"], count: int
) -> Int64[Tensor, "*batch chosen"]:
    """Numbers of 0 … count - 1 without repetition, from 32 random bits of each."""
    ranks = [
        (each.long() + 2**31) * (count - drawn) >> 32 for drawn, each in enumerate(bits.unbind(-1))
    ]
    found = []
    for drawn, number in enumerate(ranks):
        for earlier in reversed(ranks[:drawn]):  # the numbers that each earlier draw removed
            number = number + (number >= earlier)
        found.append(number)
    return torch.stack(found, -1)


def tempered_softmax(
    own: Float[Tensor, "rows length 1"],
    others: Float[Tensor, "rows length chosen"],
    ratio: Float[Tensor, "rows"],
    temperature: float,
) -> Float[Tensor, "rows length weights"]:
    """softmax(w_t / temperature) over the coordinate of x, whose noise is `own`,
    and those of `others`.
    """
    w = torch.cat([own + ratio[:, None, None], others], -1)  # w_t / s
    scale = temperature * (1 + ratio.square()).sqrt()  # temperature / s
    return (w / scale[:, None, None]).softmax(-1)


def _integral(ratio: Ratios, states: int) -> tuple[Ratios, Ratios]:
    """P(argmax w_t = x) and its derivative in the ratio, by the trapezoidal rule."""
    v = torch.linspace(-REACH, REACH, NODES, dtype=torch.float64)
    others = (states - 1) * torch.special.log_ndtr(ratio[:, None] + v)
    mass = torch.exp(others - v.square() / 2) * (v[1] - v[0]) / (2 * torch.pi) ** 0.5
    return mass.sum(1), mass @ v


@cache
def _table(states: int) -> tuple[Ratios, Ratios]:
    """Ratios and their alphas, which do not fall."""
    ratios = torch.linspace(0, LARGEST_RATIO, ENTRIES, dtype=torch.float64)
    return ratios, diffusion_transform(ratios, states).cummax(0).values
