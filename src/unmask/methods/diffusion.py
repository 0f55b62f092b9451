"""What all masked diffusion methods share: noise, the network at masked tokens, the terms at both ends of time."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from unmask.backbones.base import Backbone
from unmask.diffusion.forward import q_sample
from unmask.diffusion.parameterization import zero_masking_bias
from unmask.diffusion.schedule import Learned, Schedule
from unmask.diffusion.time_sampling import FixedCount, Noise, TimeSampler
from unmask.errors import UnmaskError
from unmask.methods.base import (
    At,
    Denoiser,
    LogProbabilities,
    Losses,
    Method,
    Tokens,
    Valid,
    padding,
)
from unmask.methods.head import RowLoss, head_loss, summary
from unmask.randomness import RowStream
from unmask.vocabulary import Vocabulary

LARGEST_SIGMA = 20.0  # alpha = 2e-9: where a schedule without a floor would feed infinity


def cross_entropy(logits: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """weight * -log <x_theta, x>."""
    total, at_x = summary(logits, x[:, None])
    return weight * (total - at_x[:, 0])


class Diffusion(Method):
    """A method that learns to undo masking; `steps` = 0 is continuous time."""

    certificate = "upper"
    zero_masking: bool = True

    def __init__(
        self,
        config: Any,
        backbone: Backbone,
        vocabulary: Vocabulary,
        schedule: Schedule,
        times: TimeSampler,
    ) -> None:
        super().__init__(config, backbone, vocabulary, schedule, times)
        self.steps: int = getattr(config, "steps", 0)
        if self.steps and isinstance(times, FixedCount):
            raise UnmaskError(
                "times fixed_count is for continuous time: set method.steps 0 or other times"
            )

    @abstractmethod
    def row_loss(self) -> RowLoss:
        """(logits, x, weight, *loss_inputs) -> loss of each masked token."""

    @abstractmethod
    def loss_inputs(self, t: Float64[Tensor, "rows"]) -> list[Float64[Tensor, "rows"]]:
        """What row_loss needs of the time, by row; the first is the weight of the token's loss."""

    def noise(self, stream: RowStream, valid: Valid, times: TimeSampler | None = None) -> Noise:
        return (times or self.times).draw(stream, valid, self.schedule, self.steps)

    def nll(self, x: Tokens, valid: Valid, noise: Noise | None, whole: bool = False) -> Losses:
        assert noise is not None
        weight, *inputs = self.loss_inputs(noise.t)
        inputs = [weight * noise.importance, *inputs]
        total, diffusion = self._masked_loss(
            x, valid, noise.masked, noise.t, self.row_loss(), [part.detach() for part in inputs]
        )
        losses = Losses(total, {"diffusion": diffusion})
        if isinstance(self.schedule, Learned) and self.training:
            losses = self._with_schedule_gradient(self.schedule, losses, valid, noise)
        return self._with_ends(losses, x, valid, noise) if whole else losses

    def log_x_theta(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        """log-probabilities of the clean token at chosen places; MASK has none."""
        h = self.backbone.features(z_t, self.condition(t, z_t.device))[at]
        bias = zero_masking_bias(self.backbone.head.bias, self.vocabulary.mask_id)
        logits = nn.functional.linear(h, self.backbone.head.weight, bias)
        return torch.log_softmax(logits.float(), -1)

    def denoiser(self) -> Denoiser:
        return self.log_x_theta

    def condition(self, t: Float[Tensor, "rows"], device: torch.device) -> Tensor | None:
        """sigma(t) for a network that reads it."""
        if not self.backbone.time_conditioning:
            return None
        sigma = self.schedule.sigma(t.double().cpu()).detach()
        return sigma.clamp(max=LARGEST_SIGMA).to(device, torch.float32)

    def _masked_loss(
        self,
        x: Tokens,
        valid: Valid,
        masked: Valid,
        t: Tensor,
        row_loss: RowLoss,
        inputs: list[Tensor],
        z_t: Tokens | None = None,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "rows length"]]:
        """Sum and per-token values of a loss at masked tokens: only they reach the projection."""
        z_t = q_sample(x, masked, self.vocabulary.mask_id) if z_t is None else z_t
        h = self.backbone.features(z_t, self.condition(t, x.device), valid=padding(valid))
        at = masked.nonzero(as_tuple=True)
        by_token = [part.to(x.device, torch.float32)[at[0]] for part in inputs]
        bias: Tensor = self.backbone.head.bias
        if self.zero_masking:
            bias = zero_masking_bias(bias, self.vocabulary.mask_id)
        total, losses = head_loss(
            h[at], self.backbone.head.weight, bias, row_loss, x[at], *by_token
        )
        return total, torch.zeros(x.shape, device=x.device).index_put(at, losses)

    def _with_ends(self, losses: Losses, x: Tokens, valid: Valid, noise: Noise) -> Losses:
        """Adds the steps from all-MASK to the first drawn time and from the last one to clean text."""
        terms = dict(losses.terms)
        ends: list[tuple[str, Valid, float, float]] = []
        if noise.unstarted > 0:
            ends.append(("prior", valid, 1.0, noise.unstarted))
        if noise.unfinished.any():
            ends.append(("reconstruction", noise.unfinished, noise.t_min, 1.0))
        total = losses.total
        for name, masked, t, weight in ends:
            rows = torch.full((len(x),), t, dtype=torch.float64)
            weights = torch.full_like(rows, weight)
            extra, values = self._masked_loss(x, valid, masked, rows, cross_entropy, [weights])
            total = total + extra
            terms[name] = terms[name] + values if name in terms else values
        return replace(losses, total=total, terms=terms)

    def _with_schedule_gradient(
        self, schedule: Learned, losses: Losses, valid: Valid, noise: Noise
    ) -> Losses:
        """Lets a learned schedule feel the variance of the bound; the value does not change."""
        lengths = valid.sum(1).cpu().double().clamp(min=1)  # a row may be all padding
        by_row = losses.per_token().sum(1).cpu().double() / lengths / noise.importance
        moment = schedule.second_moment(noise.t, by_row, noise.importance) * lengths.sum()
        return replace(losses, total=losses.total + (moment - moment.detach()).to(losses.total))
