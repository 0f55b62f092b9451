"""Weights and divergences of the likelihood bounds (NELBO)."""

import torch

from unmask.diffusion.parameterization import log_expm1
from unmask.diffusion.process import unmask_probability
from unmask.diffusion.schedule import Schedule, Times
from unmask.shapes import PerToken


def continuous_weight(schedule: Schedule, t: Times) -> Times:
    """-alpha'(t) / (1 - alpha(t)): weight of -log <x_theta, x> of a masked token (Eq. 10)."""
    return -schedule.alpha_prime(t) / (1 - schedule.alpha(t))


def step_alphas(schedule: Schedule, t: Times, steps: int) -> tuple[Times, Times]:
    """alpha_s and alpha_t of the step from s = t - 1 / steps to t."""
    return schedule.alpha((t - 1 / steps).clamp(min=0)), schedule.alpha(t)


def discrete_weight(schedule: Schedule, t: Times, steps: int) -> Times:
    """T (alpha_s - alpha_t) / (1 - alpha_t): weight of the T-step bound, t uniform on {1/T,
    ..., 1}.
    """
    alpha_s, alpha_t = step_alphas(schedule, t, steps)
    return steps * unmask_probability(alpha_s, alpha_t)


def clipped_share(masked: Times, limit: float) -> Times:
    """Factor on the bound's weight in a training loss that clips 1/r, at mask ratios r.

    In the bound, a mean over r in [0, 1], a masked token has the weight 1/r. Here the weight is
    min(1/r, limit), scaled so that the mean of the factor over r is 1. So loss and gradients are
    about as large as the bound's. With `limit` 1 all masked tokens have the weight 2. As for the
    bound, the mean of the loss does not depend on the schedule or the time sampler.
    """
    return (limit * masked).clamp(max=1) / (1 - 1 / (2 * limit))


def d3pm_divergence(
    log_x: PerToken, log_m: PerToken, alpha_s: PerToken, alpha_t: PerToken
) -> PerToken:
    """KL(q(z_s | m, x) || p_theta(z_s | m)), from x_theta's log-probabilities of x and of MASK.

    If MASK has probability 0, this is -(alpha_s - alpha_t) / (1 - alpha_t) log <x_theta, x>.
    """
    m = log_m.exp()
    evidence = torch.log1p(alpha_t * m / (1 - alpha_t))
    revealed = unmask_probability(alpha_s, alpha_t)
    # the step that ends at alpha_s = 1 leaves no mask: its second term is 0 log 0 = 0
    masked = 1 - alpha_s
    stays = torch.where(masked > 0, torch.log1p(alpha_s * m / masked.clamp(min=1e-30)), evidence)
    return revealed * (evidence - log_x) + (1 - revealed) * (evidence - stays)


def score_entropy(log_score_x: PerToken, log_score_sum: PerToken, sigma: PerToken) -> PerToken:
    """sum_{y != m} s_y - r log s_x + r (log r - 1) of a masked token, with r = 1 / (e^sigma - 1).

    `log_score_x` is the log score of the true token, `log_score_sum` the log of the sum over all.
    """
    ratio = 1 / torch.expm1(sigma)
    # log r is computed from sigma, because r rounds to 0 in float32 at a large sigma
    return log_score_sum.exp() - ratio * (log_score_x + log_expm1(sigma) + 1)
