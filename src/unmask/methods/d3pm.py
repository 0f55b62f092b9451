"""D3PM with an absorbing state: T-step bound of a network that may predict MASK."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from unmask.diffusion.nelbo import d3pm_divergence, step_alphas
from unmask.diffusion.process import q_sample
from unmask.diffusion.time_sampler import Noise, RowNoise
from unmask.methods.compute.token_tensors import token_tensors
from unmask.methods.masked_diffusion import MaskedDiffusion, prefixed
from unmask.methods.method import METHODS
from unmask.options import Checked, option
from unmask.shapes import Batch


@METHODS.register("d3pm")
class D3PM(MaskedDiffusion):
    """Absorbing D3PM in mean parameterization; `zero_masking` and `carry_over` are Table 8's ablations."""

    @dataclass(frozen=True)
    class Config(Checked):
        steps: int = option(1000, ge=1)
        zero_masking: bool = False
        carry_over: bool = False
        # share of the rows of a batch that train the reconstruction term
        copied: float = option(1.0, gt=0, le=1)

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.zero_masking = config.zero_masking
        self.carry_over = config.carry_over
        self.copied = config.copied

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        """Without carry-over, the reconstruction term covers clean tokens of z_0 too.

        In training, the first rows estimate it for the batch: the network soon learns to copy, and
        a second pass over the whole batch would double the cost of a step.
        """
        assert isinstance(noise, Noise)
        if self.carry_over:
            return super().tensors_of(batch, noise, full_bound)
        finished = replace(noise, unfinished=torch.zeros_like(noise.unfinished))
        tensors = super().tensors_of(batch, finished, full_bound)
        rows = len(batch.x) if full_bound else self._copied_rows(len(batch.x))
        some = batch.part(slice(rows))
        z_0 = q_sample(some.x, noise.unfinished[:rows], self.vocabulary.mask_id)
        start = torch.zeros(rows, dtype=torch.float64)
        weight, sigma = (
            torch.full_like(start, len(batch.x) / rows),
            self.condition(start, z_0.device),
        )
        copied = token_tensors(self, some, z_0, some.scored, [weight], sigma)
        return tensors | prefixed("reconstruction", copied)

    def passes(self, rows: int) -> set[int]:
        return {rows} if self.carry_over else {rows, self._copied_rows(rows)}

    def token_loss(self, total: Tensor, chosen: Tensor, weight: Tensor, *inputs: Tensor) -> Tensor:
        """weight * KL of the posteriors, from the logits of x and of MASK."""
        log_x, log_m = (chosen - total[:, None]).unbind(1)
        return weight * d3pm_divergence(log_x, log_m, *inputs)

    def read(self, x: Int[Tensor, "tokens"]) -> Int[Tensor, "tokens chosen"]:
        return torch.stack([x, torch.full_like(x, self.vocabulary.mask_id)], 1)

    def loss_inputs(self, t: Tensor) -> list[Tensor]:
        alpha_s, alpha_t = step_alphas(self.schedule, t, self.steps)
        return [torch.full_like(t, self.steps), alpha_s, alpha_t]

    def _copied_rows(self, rows: int) -> int:
        return max(1, round(self.copied * rows))
