"""The weights and divergences that make a likelihood bound of a masked-token loss."""

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.diffusion.posterior import unmask_probability
from unmask.diffusion.schedule import Schedule, Times

PerToken = Float[Tensor, "*batch"]


def continuous_weight(schedule: Schedule, t: Times) -> Times:
    """-alpha'(t) / (1 - alpha(t)): what -log <x_theta, x> of a masked token costs at time t (Eq. 10)."""
    return -schedule.alpha_prime(t) / (1 - schedule.alpha(t))


def step_alphas(schedule: Schedule, t: Times, steps: int) -> tuple[Times, Times]:
    """alpha_s and alpha_t of the step that ends at t, of `steps` equal ones."""
    return schedule.alpha((t - 1 / steps).clamp(min=0)), schedule.alpha(t)


def discrete_weight(schedule: Schedule, t: Times, steps: int) -> Times:
    """T (alpha_s - alpha_t) / (1 - alpha_t), for t uniform on {1/T, ..., 1}."""
    alpha_s, alpha_t = step_alphas(schedule, t, steps)
    return steps * unmask_probability(alpha_s, alpha_t)


def d3pm_divergence(
    log_x: PerToken, log_m: PerToken, alpha_s: PerToken, alpha_t: PerToken
) -> PerToken:
    """KL(q(z_s | m, x) || p_theta(z_s | m)) where x_theta gives x and MASK these log-probabilities.

    Without mass on MASK this is -(alpha_s - alpha_t) / (1 - alpha_t) log <x_theta, x>.
    """
    m = log_m.exp()
    evidence = torch.log1p(alpha_t * m / (1 - alpha_t))
    revealed = unmask_probability(alpha_s, alpha_t)
    # the step that ends at alpha_s = 1 leaves no mask behind: its second term is 0 log 0 = 0
    left = 1 - alpha_s
    still = torch.where(left > 0, torch.log1p(alpha_s * m / left.clamp(min=1e-30)), evidence)
    return revealed * (evidence - log_x) + (1 - revealed) * (evidence - still)
