"""D3PM with an absorbing state: T-step bound of a network that may predict MASK."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.diffusion.nelbo import d3pm_divergence, step_alphas
from unmask.diffusion.process import q_sample
from unmask.diffusion.time_sampler import Noise, RowNoise
from unmask.errors import UnmaskError
from unmask.methods.compute.chunked_loss import RowLoss
from unmask.methods.masked_diffusion import MaskedDiffusion, cross_entropy, token_tensors
from unmask.methods.method import METHODS, Losses, targets
from unmask.runtime.device import to_device
from unmask.shapes import Tokens, Valid

COPIED = "copied "  # begins the names of the tensors of the reconstruction term


def divergence(
    total: Tensor, chosen: Tensor, weight: Tensor, alpha_s: Tensor, alpha_t: Tensor
) -> Tensor:
    """weight * KL of the posteriors, from the logits of x and of MASK."""
    log_x, log_m = (chosen - total[:, None]).unbind(1)
    return weight * d3pm_divergence(log_x, log_m, alpha_s, alpha_t)


@METHODS.register("d3pm")
class D3PM(MaskedDiffusion):
    """Absorbing D3PM in mean parameterization; `zero_masking` and `carry_over` are Table 8's ablations."""

    @dataclass(frozen=True)
    class Config:
        steps: int = 1000
        zero_masking: bool = False
        carry_over: bool = False
        copied: float = 1.0  # share of the rows of a batch that train the reconstruction term

        def __post_init__(self) -> None:
            if self.steps < 1:
                raise UnmaskError(f"steps must be 1 or more, not {self.steps}")
            if not 0 < self.copied <= 1:
                raise UnmaskError(f"copied must lie in (0, 1], not {self.copied}")

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.zero_masking = config.zero_masking
        self.carry_over = config.carry_over
        self.copied = config.copied

    def nll(
        self,
        x: Tokens,
        valid: Valid,
        noise: RowNoise | None,
        full_bound: bool = False,
        given: Valid | None = None,
    ) -> Losses:
        assert isinstance(noise, Noise)
        if self.carry_over:
            return super().nll(x, valid, noise, full_bound, given)
        # without unfinished tokens, super() adds no reconstruction term
        finished = replace(noise, unfinished=torch.zeros_like(noise.unfinished))
        losses = super().nll(x, valid, finished, full_bound, given)
        rows = len(x) if full_bound else self._copied_rows(len(x))
        return self._with_reconstruction(losses, x, valid, noise, rows, given)

    def noise_tensors(
        self, x: Tokens, valid: Valid, scored: Valid, noise: RowNoise | None
    ) -> dict[str, Tensor]:
        tensors = super().noise_tensors(x, valid, scored, noise)
        if self.carry_over:
            return tensors
        assert isinstance(noise, Noise)
        rows = self._copied_rows(len(x))
        x, unfinished, scored, valid = (
            part[:rows] for part in (x, noise.unfinished, scored, valid)
        )
        z_0 = q_sample(x, unfinished, self.vocabulary.mask_id)
        start = torch.zeros(rows, dtype=torch.float64)
        weight = torch.full_like(start, len(noise.t) / rows)
        sigma = self.condition(start, x.device)
        second = token_tensors(x, z_0, scored, [weight], valid, sigma)
        return tensors | {COPIED + name: value for name, value in second.items()}

    def loss_of(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The loss of `forward`: without carry-over, a second pass adds the reconstruction term."""
        second = {
            name.removeprefix(COPIED): value
            for name, value in tensors.items()
            if name.startswith(COPIED)
        }
        total = super().loss_of(tensors)
        return total + self._loss_of(second, cross_entropy) if second else total

    def passes(self, rows: int) -> set[int]:
        return {rows} if self.carry_over else {rows, self._copied_rows(rows)}

    def row_loss(self) -> RowLoss:
        return divergence

    def read(self, x: Int[Tensor, "tokens"]) -> Int[Tensor, "tokens chosen"]:
        return torch.stack([x, torch.full_like(x, self.vocabulary.mask_id)], 1)

    def loss_inputs(self, t: Tensor) -> list[Tensor]:
        alpha_s, alpha_t = step_alphas(self.schedule, t, self.steps)
        return [torch.full_like(t, self.steps), alpha_s, alpha_t]

    def _copied_rows(self, rows: int) -> int:
        return max(1, round(self.copied * rows))

    def _with_reconstruction(
        self,
        losses: Losses,
        x: Tokens,
        valid: Valid,
        noise: Noise,
        rows: int,
        given: Valid | None,
    ) -> Losses:
        """Adds the reconstruction term. Without carry-over it covers clean tokens of z_0 too.

        The first `rows` rows estimate it for the batch, with weight len(x) / rows. The network soon
        learns to copy, and a second pass over the whole batch would double the cost of a step.
        """
        unfinished = to_device(noise.unfinished, x.device)
        z_0 = q_sample(x, unfinished, self.vocabulary.mask_id)
        some, scored = slice(rows), targets(valid, given)
        start = torch.zeros(rows, dtype=torch.float64)
        weight = torch.full_like(start, len(x) / rows)
        total, values = self._masked_loss(
            x[some], valid[some], scored[some], start, cross_entropy, [weight], z_t=z_0[some]
        )
        by_token = torch.zeros(x.shape, device=x.device)
        by_token[some] = values
        terms = {**losses.terms, "reconstruction": by_token}
        return replace(losses, total=losses.total + total, terms=terms)
