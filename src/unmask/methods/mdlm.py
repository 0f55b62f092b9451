"""MDLM (arXiv 2406.07524): SUBS parameterization and a weighted masked-language-model loss."""

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from unmask.diffusion.nelbo import clipped_share, continuous_weight, discrete_weight
from unmask.diffusion.schedule import Learned
from unmask.diffusion.time_sampler import Noise
from unmask.errors import UnmaskError
from unmask.methods.masked_diffusion import MaskedDiffusion, cross_entropy
from unmask.methods.method import METHODS
from unmask.options import Checked, option
from unmask.randomness import RowStream
from unmask.shapes import Valid

LOSS_WEIGHTS = ("elbo", "uniform", "clipped")


@METHODS.register("mdlm")
class MDLM(MaskedDiffusion):
    """Masked diffusion with SUBS; its bound is a weighted mean of masked-language-model losses."""

    @dataclass(frozen=True)
    class Config(Checked):
        steps: int = option(0, ge=0)  # T of the bound; 0 is continuous time
        # in training: elbo | uniform (all masked tokens alike) | clipped
        loss_weight: str = option("elbo", among=LOSS_WEIGHTS)
        largest_weight: float = option(10.0, ge=1, lt=math.inf)  # of a masked token, if clipped
        # of a teacher's predictions in the targets of training
        teacher_share: float = option(0.5, ge=0, le=1)

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        if config.loss_weight == "elbo":
            return
        self.loss_weight = config.loss_weight
        if isinstance(self.schedule, Learned):
            raise UnmaskError(
                f"a learned schedule minimises the variance of the bound: set method.loss_weight "
                f"elbo, not {config.loss_weight}"
            )

    def training_noise(self, stream: RowStream, valid: Valid) -> Noise:
        return self.weighted(self.noise(stream, valid))

    def weighted(self, noise: Noise) -> Noise:
        """Noise whose importance includes the training weights, which have mean 1 over mask ratios.

        Args:
            noise: Noise of the bound.

        Returns:
            The same noise with the importance of training.
        """
        weight = self.config.loss_weight
        if weight == "elbo":
            return noise
        limit = self.config.largest_weight if weight == "clipped" else 1.0
        share = clipped_share(1 - self.schedule.alpha(noise.t), limit)
        return replace(noise, importance=noise.importance * share)

    def token_loss(self, total: Tensor, chosen: Tensor, weight: Tensor, *inputs: Tensor) -> Tensor:
        return cross_entropy(total, chosen, weight)

    def loss_inputs(self, t: Tensor) -> list[Tensor]:
        if self.steps:
            return [discrete_weight(self.schedule, t, self.steps)]
        return [continuous_weight(self.schedule, t)]
