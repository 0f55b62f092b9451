"""The T-step bound for several T from one set of draws, for networks without time conditioning.

Given the number of masked tokens of a row, their positions have the same distribution for every T. Only
the weight of that number changes with T. So one pass with the draws of the continuous bound serves every T,
and the bounds for different T can be compared draw by draw.
"""

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from unmask.diffusion.categorical import binomial
from unmask.diffusion.nelbo import step_alphas
from unmask.diffusion.process import unmask_probability
from unmask.diffusion.schedule import Schedule
from unmask.diffusion.time_sampler import FixedCount, Noise
from unmask.errors import UnmaskError
from unmask.likelihood.draws import BLOCK, draw_stream, independent_means
from unmask.likelihood.measured_rows import TokenRows, counted_in, given_in
from unmask.methods.method import Method
from unmask.shapes import Batch


@torch.no_grad()
def nats_by_steps(
    method: Method, rows: TokenRows, steps: Sequence[int], *, draws: int = 8, seed: int = 0
) -> dict[int, Float64[Tensor, "groups"]]:
    """Nats per token of the T-step bound, of each independent group of draws; T = 0 is continuous time."""
    if not method.capabilities.time_bound or not hasattr(method.config, "steps") or method.steps:
        raise UnmaskError(
            "this model has no bound by T: give a continuous-time model whose method has steps"
        )
    if method.backbone.time_conditioning:
        raise UnmaskError(
            "this network reads the time, so its draws cannot be shared between T: measure each T by itself"
        )
    sums = {T: torch.zeros(draws, dtype=torch.float64) for T in steps}
    weights: dict[tuple[int, int], Tensor] = {}
    tokens = 0
    for start in range(0, len(rows), BLOCK):
        part = range(start, min(start + BLOCK, len(rows)))
        x, valid = rows[part]
        batch = Batch(x, valid, given_in(rows, part))
        lengths = batch.scored.sum(1)
        tokens += int(counted_in(rows, part, valid).sum())
        for T in steps:
            for length in set(lengths.tolist()) - {0}:
                if (T, length) not in weights:
                    weights[T, length] = step_weights(method.schedule, length, T)
        for number in range(draws):
            stream = draw_stream(seed, number, draws, part, part)
            noise = method.noise(stream, batch.scored, FixedCount())
            assert isinstance(noise, Noise)
            losses = method.nll(batch, noise)
            # the loss of a row of n tokens with k masked is n / k times their cross-entropy
            nats = losses.per_token().double().sum(1).cpu() / lengths.clamp(min=1)
            counts = noise.masked.sum(1)
            for T in steps:
                weigh = partial(_weight, weights, T)
                by_row = torch.stack([weigh(n, k) for n, k in zip(lengths, counts, strict=True)])
                sums[T][number] += (nats * by_row).sum()
    return {T: independent_means(total / tokens, len(rows)) for T, total in sums.items()}


def step_weights(schedule: Schedule, length: int, steps: int) -> Float64[Tensor, "counts"]:
    """Expected number of reveals while k tokens are masked, divided by k, for k from 0 to length.

    Continuous time: 1/k. In T steps, a step that starts with k masks reveals each with probability
    (alpha_s - alpha_t) / (1 - alpha_t). The prior term (clean at t = 1) and the reconstruction term
    (masked at t = 0) are included. The sum of k times the weight over all k is the length.
    """
    k, n = torch.arange(length + 1), torch.tensor(length)
    if steps == 0:
        return 1 / k.clamp(min=1).double()
    t = torch.arange(1, steps + 1, dtype=torch.float64) / steps
    alpha_s, alpha_t = step_alphas(schedule, t, steps)
    last, first = schedule.alpha(torch.tensor([0.0, 1.0], dtype=torch.float64))
    weights = unmask_probability(alpha_s, alpha_t) @ binomial(k, n, 1 - alpha_t[:, None])
    weights += binomial(k, n, 1 - last)
    weights[length] += first
    return weights.detach()


def shares_draws(schedule: Schedule, length: int, steps: int) -> bool:
    """True if the weights of T steps vary so little that the draws of continuous time suffice.

    A small T visits few numbers k of masked tokens, and their weights are then large. A variance v of
    k * weight adds about v times the square of a row's nats to the variance of one draw.
    """
    k = torch.arange(1, length + 1, dtype=torch.float64)
    return float((k * step_weights(schedule, length, steps)[1:]).var()) < 0.003  # their mean is 1


def _weight(
    weights: dict[tuple[int, int], Tensor], steps: int, n: Int64[Tensor, ""], k: Int64[Tensor, ""]
) -> Float64[Tensor, ""]:
    """Factor from the mean nats of k masked tokens to the nats of a row of n: weight * k * n."""
    length = int(n)
    if length == 0:
        return torch.zeros((), dtype=torch.float64)
    return weights[steps, length][int(k)] * k * length
