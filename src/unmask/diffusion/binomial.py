"""How many tokens are masked: the binomial distribution."""

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

Counts = Int64[Tensor, "*#batch"]
Chances = Float64[Tensor, "*#batch"]


def binomial(k: Counts, n: Counts, r: Chances) -> Chances:
    """The chance that k of n tokens are masked, each with chance r."""
    k, n = k.double(), n.double()
    left = (n - k).clamp(min=0)
    ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(left + 1)
    chance = torch.exp(ways + torch.xlogy(k, r) + torch.special.xlog1py(left, -r))
    return torch.where(k <= n, chance, 0.0)


def binomial_quantile(
    u: Float64[Tensor, "rows"], n: Int64[Tensor, "rows"], r: Float64[Tensor, "rows"]
) -> Int64[Tensor, "rows"]:
    """The smallest count that is not exceeded with a chance above u: a draw, if u is uniform."""
    counts = torch.arange(int(n.max()) + 1 if len(n) else 1)
    at_most = binomial(counts, n[:, None], r[:, None]).cumsum(1)
    return torch.minimum((at_most <= u[:, None]).sum(1), n)
