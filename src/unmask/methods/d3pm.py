"""D3PM with an absorbing state: the T-step bound of a network that may put mass on MASK."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unmask.backbones.base import Backbone
from unmask.diffusion.nelbo import d3pm_divergence, step_alphas
from unmask.diffusion.schedule import Schedule
from unmask.diffusion.time_sampling import Noise, TimeSampler
from unmask.errors import UnmaskError
from unmask.methods.base import METHODS, Losses, Tokens, Valid
from unmask.methods.diffusion import Diffusion, cross_entropy
from unmask.methods.head import RowLoss
from unmask.vocabulary import Vocabulary


@METHODS.register("d3pm")
class D3PM(Diffusion):
    """Absorbing D3PM, mean parameterization; both switches of SUBS are Table 8's ablations."""

    @dataclass(frozen=True)
    class Config:
        steps: int = 1000
        zero_masking: bool = False
        carry_over: bool = False

        def __post_init__(self) -> None:
            if self.steps < 1:
                raise UnmaskError(f"steps must be 1 or more, not {self.steps}")

    def __init__(
        self,
        config: Config,
        backbone: Backbone,
        vocabulary: Vocabulary,
        schedule: Schedule,
        times: TimeSampler,
    ) -> None:
        super().__init__(backbone, vocabulary, schedule, times)
        self.steps = config.steps
        self.zero_masking = config.zero_masking
        self.carry_over = config.carry_over

    def nll(self, x: Tokens, valid: Valid, noise: Noise | None, whole: bool = False) -> Losses:
        losses = super().nll(x, valid, noise, whole)
        return losses if self.carry_over else self._with_reconstruction(losses, x, valid)

    def row_loss(self) -> RowLoss:
        mask_id = self.vocabulary.mask_id

        def divergence(
            logits: Tensor, x: Tensor, weight: Tensor, alpha_s: Tensor, alpha_t: Tensor
        ) -> Tensor:
            total = logits.logsumexp(-1)
            log_x = logits.gather(-1, x[:, None])[:, 0] - total
            return weight * d3pm_divergence(log_x, logits[:, mask_id] - total, alpha_s, alpha_t)

        return divergence

    def loss_inputs(self, t: Tensor) -> list[Tensor]:
        alpha_s, alpha_t = step_alphas(self.schedule, t, self.steps)
        return [torch.full_like(t, self.steps), alpha_s, alpha_t]

    def _with_reconstruction(self, losses: Losses, x: Tokens, valid: Valid) -> Losses:
        """Without carry-over the network must also copy the clean text at t = 0, at every token."""
        start = torch.zeros(len(x), dtype=torch.float64)
        total, copied = self._masked_loss(
            x, valid, valid, start, cross_entropy, [torch.ones_like(start)], z_t=x
        )
        terms = dict(losses.terms)
        terms["reconstruction"] = terms.get("reconstruction", torch.zeros_like(copied)) + copied
        return replace(losses, total=losses.total + total, terms=terms)
