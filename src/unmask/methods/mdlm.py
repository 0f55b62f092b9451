"""MDLM (arXiv 2406.07524): SUBS parameterization and a weighted masked-language-model loss."""

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from unmask.diffusion.nelbo import clipped_share, continuous_weight, discrete_weight
from unmask.diffusion.schedule import Learned
from unmask.diffusion.time_sampler import Noise
from unmask.errors import UnmaskError, unknown
from unmask.methods.masked_diffusion import MaskedDiffusion, cross_entropy
from unmask.methods.method import METHODS
from unmask.randomness import RowStream
from unmask.shapes import Valid

LOSS_WEIGHTS = ("elbo", "uniform", "clipped")


@METHODS.register("mdlm")
class MDLM(MaskedDiffusion):
    """Masked diffusion with SUBS; its bound is a weighted mean of masked-language-model losses."""

    @dataclass(frozen=True)
    class Config:
        steps: int = 0  # T of the bound; 0 is continuous time
        loss_weight: str = "elbo"  # in training: elbo | uniform (all masked tokens alike) | clipped
        largest_weight: float = 10.0  # of a masked token, if clipped
        teacher_share: float = 0.5  # of a teacher's predictions in the targets of training

        def __post_init__(self) -> None:
            if self.steps < 0:
                raise UnmaskError(f"steps must be 0 (continuous time) or more, not {self.steps}")
            if self.loss_weight not in LOSS_WEIGHTS:
                raise unknown("loss_weight", self.loss_weight, LOSS_WEIGHTS)
            if not 1 <= self.largest_weight < math.inf:
                raise UnmaskError(
                    f"largest_weight must be finite and at least 1, not {self.largest_weight}"
                )
            if not 0 <= self.teacher_share <= 1:
                raise UnmaskError(f"teacher_share must lie in [0, 1], not {self.teacher_share}")

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
