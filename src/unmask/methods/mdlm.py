"""MDLM (arXiv 2406.07524): SUBS parameterization and a weighted masked-language-model loss."""

from dataclasses import dataclass

from torch import Tensor

from unmask.diffusion.nelbo import continuous_weight, discrete_weight
from unmask.errors import UnmaskError
from unmask.methods.compute.chunked_loss import RowLoss
from unmask.methods.masked_diffusion import MaskedDiffusion, cross_entropy
from unmask.methods.method import METHODS


@METHODS.register("mdlm")
class MDLM(MaskedDiffusion):
    """Masked diffusion with SUBS; its bound is a weighted mean of masked-language-model losses."""

    @dataclass(frozen=True)
    class Config:
        steps: int = 0  # T of the bound; 0 is continuous time

        def __post_init__(self) -> None:
            if self.steps < 0:
                raise UnmaskError(f"steps must be 0 (continuous time) or more, not {self.steps}")

    def row_loss(self) -> RowLoss:
        return cross_entropy

    def loss_inputs(self, t: Tensor) -> list[Tensor]:
        if self.steps:
            return [discrete_weight(self.schedule, t, self.steps)]
        return [continuous_weight(self.schedule, t)]
