"""SEDD with an absorbing state (arXiv 2310.16834): the network models ratios of probabilities."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unmask.backbones.base import Backbone
from unmask.diffusion.parameterization import sedd_offset
from unmask.diffusion.score_entropy import score_entropy
from unmask.errors import UnmaskError
from unmask.methods.base import METHODS
from unmask.methods.diffusion import Diffusion
from unmask.methods.head import RowLoss, summary


@METHODS.register("sedd")
class SEDD(Diffusion):
    """Score entropy: learns the concrete score; needs a time-conditioned network."""

    @dataclass(frozen=True)
    class Config:
        pass

    def __init__(self, config: Config, backbone: Backbone, *parts: Any) -> None:
        super().__init__(config, backbone, *parts)
        if not backbone.time_conditioning:
            raise UnmaskError(
                "SEDD's score depends on the noise level: set backbone.time_conditioning true"
            )

    def row_loss(self) -> RowLoss:
        size = self.vocabulary.size

        def entropy(logits: Tensor, x: Tensor, weight: Tensor, sigma: Tensor) -> Tensor:
            offset = sedd_offset(sigma, size)
            total, at_x = summary(logits, x[:, None])
            return weight * score_entropy(at_x[:, 0] - offset, total - offset, sigma)

        return entropy

    def loss_inputs(self, t: Tensor) -> list[Tensor]:
        return [self.schedule.sigma_prime(t), self.schedule.sigma(t)]
