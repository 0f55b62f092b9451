"""SEDD's loss: score entropy, a bound on the negative log-likelihood when integrated over the noise."""

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.diffusion.parameterization import log_expm1

PerToken = Float[Tensor, "*batch"]


def score_entropy(log_score_x: PerToken, log_score_sum: PerToken, sigma: PerToken) -> PerToken:
    """sum_{y != m} s_y - r log s_x + r (log r - 1) of a masked token, with r = 1 / (e^sigma - 1).

    `log_score_x` is the log score of the true token, `log_score_sum` the log of the sum over all.
    """
    ratio = 1 / torch.expm1(sigma)
    # log r by its own formula: under heavy noise r rounds to zero in single precision
    return log_score_sum.exp() - ratio * (log_score_x + log_expm1(sigma) + 1)
