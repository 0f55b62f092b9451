"""Signs that the codes or the noise schedule of a method of vectors have failed in training."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unmask.extensions.vectors.diffusion.gaussian import GammaSchedule

LARGEST_GAMMA = 30.0  # SNR 1e-13: a schedule that reaches it has exploded
LARGEST_CODE = 1e4  # norm
SMALLEST_SPREAD = 1e-4  # of the codes, relative to their norm
REASONS = {
    "collapsed": "the codes of all tokens are equal: lower method.code_lr or training.lr",
    "exploded": "the norm of the codes has exploded: lower method.code_lr or training.lr",
    "schedule": "the noise schedule has left its range: lower training.lr",
}


@torch.no_grad()
def faults(
    codes: Float[Tensor, "vocabulary width"], gammas: GammaSchedule
) -> dict[str, Bool[Tensor, ""]]:
    """True, on the device, for each reason of REASONS that holds."""
    norm = codes.norm(dim=-1).mean()
    spread = (codes - codes.mean(0)).norm(dim=-1).mean()
    ends = gammas.gamma(torch.arange(2, dtype=torch.float32, device=codes.device))
    return {
        "collapsed": ~(spread > SMALLEST_SPREAD * norm),
        "exploded": ~(norm < LARGEST_CODE),
        "schedule": (ends.abs() > LARGEST_GAMMA).any() | (ends[1] <= ends[0]),
    }
