"""Exact categorical and binomial draws, from 53-bit uniforms."""

import math

import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.runtime.kernels.availability import kernels_available

LogProbabilities = Float[Tensor, "tokens vocabulary"]
BLOCK = 256  # `draw` splits a larger vocabulary into blocks of this many tokens
COLDEST, HOTTEST = 1e-6, 1e6  # temperatures; below COLDEST only the likeliest token is kept


def check_sharpness(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raises an error if an argument of `sharpen` is out of its range."""
    if not 0 <= temperature <= HOTTEST:
        raise UnmaskError(
            f"temperature must be 0 or more, and {HOTTEST:g} at most, not {temperature}"
        )
    if top_k is not None and top_k < 1:
        raise UnmaskError(f"top_k must be 1 or more, not {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise UnmaskError(f"top_p must lie in (0, 1], not {top_p}")


def sharpen(
    log_probabilities: LogProbabilities,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> LogProbabilities:
    """Applies temperature, then top-k, then nucleus (top-p) to log-probabilities.

    Temperature 0 keeps the likeliest token only.
    """
    check_sharpness(temperature, top_k, top_p)
    if temperature < COLDEST:
        top_k = 1
    elif temperature != 1:
        # relative to the likeliest token, so that a small temperature does not overflow
        relative = log_probabilities - log_probabilities.amax(-1, keepdim=True)
        log_probabilities = torch.log_softmax(relative / temperature, -1)
    if top_k is not None and top_k < log_probabilities.shape[-1]:
        kept = log_probabilities.topk(top_k, -1)
        excluded = torch.full_like(log_probabilities, -math.inf)
        log_probabilities = excluded.scatter(-1, kept.indices, kept.values)
    if top_p is not None and top_p < 1:
        ordered, order = log_probabilities.log_softmax(-1).sort(-1, descending=True)
        before = ordered.exp().cumsum(-1) - ordered.exp()  # probability of all likelier tokens
        excluded = before >= top_p
        excluded[..., 0] = False  # keep the likeliest token
        ordered = ordered.masked_fill(excluded, -math.inf)
        log_probabilities = torch.empty_like(ordered).scatter(-1, order, ordered)
    return log_probabilities


def draw(
    log_probabilities: LogProbabilities, uniforms: Float64[Tensor, "tokens"]
) -> Int[Tensor, "tokens"]:
    """One token per distribution, by inversion of its cumulative distribution in float64.

    Uniforms of 53 bits also draw rare tokens; those of 24 bits draw none rarer than about 1e-7. In
    a large vocabulary, the inversion finds a block of tokens, then the token in it. So both
    cumulative sums are short.
    """
    device = log_probabilities.device
    if device.type == "cuda" and kernels_available():
        from unmask.runtime.kernels import categorical_draw

        return categorical_draw.draw(log_probabilities, uniforms.to(device))
    if device.type == "mps":  # it has no float64
        log_probabilities = log_probabilities.cpu()
    uniforms = uniforms.to(log_probabilities.device)[:, None]
    size = log_probabilities.shape[-1]
    if size <= BLOCK:
        cumulative = log_probabilities.double().exp().cumsum(-1)
        return _first_beyond(cumulative, uniforms * cumulative[:, -1:])[:, 0].to(device)
    # an empty first block, so that each other block has one before it
    padded = nn.functional.pad(log_probabilities, (BLOCK, -size % BLOCK), value=-math.inf)
    blocks = padded.double().exp().unflatten(-1, (-1, BLOCK))
    cumulative = blocks.sum(-1).cumsum(-1)
    target = uniforms * cumulative[:, -1:]
    block = _first_beyond(cumulative, target)
    before = block - 1
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, BLOCK))[:, 0].cumsum(-1)
    token = _first_beyond(inside, target - cumulative.gather(-1, before))
    return torch.add(token, before, alpha=BLOCK)[:, 0].to(device)


def _first_beyond(
    cumulative: Float64[Tensor, "tokens entries"], target: Float64[Tensor, "tokens 1"]
) -> Int[Tensor, "tokens 1"]:
    """The first entry whose cumulative probability exceeds the target.

    That entry never has probability 0.
    """
    # a rounded target can reach the total: lower it, so that such an entry exists
    below = torch.minimum(target, cumulative[:, -1:] * (1 - 2.0**-53))
    return torch.searchsorted(cumulative, below, right=True)


Counts = Int64[Tensor, "*#batch"]
Probabilities = Float64[Tensor, "*#batch"]


def binomial(k: Counts, n: Counts, r: Probabilities) -> Probabilities:
    """Probability that k of n tokens are masked, each with probability r."""
    k, n = k.double(), n.double()
    left = (n - k).clamp(min=0)
    ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(left + 1)
    probability = torch.exp(ways + torch.xlogy(k, r) + torch.special.xlog1py(left, -r))
    return torch.where(k <= n, probability, 0.0)


def binomial_quantile(
    u: Float64[Tensor, "rows"], n: Int64[Tensor, "rows"], r: Float64[Tensor, "rows"]
) -> Int64[Tensor, "rows"]:
    """The smallest count k with P(count <= k) > u: a binomial draw if u is uniform."""
    counts = torch.arange(int(n.max()) + 1 if len(n) else 1)
    at_most = binomial(counts, n[:, None], r[:, None]).cumsum(1)
    return torch.minimum((at_most <= u[:, None]).sum(1), n)
