"""The masked language model of BERT (arXiv 1810.04805), for pretraining."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.methods.compute.token_tensors import token_tensors
from unmask.methods.masked_diffusion import MaskedDiffusion, cross_entropy
from unmask.methods.method import METHODS, Losses
from unmask.options import Checked, option
from unmask.randomness import RowStream
from unmask.shapes import Batch, Tensors, Valid

MASKED, REPLACED = 0.8, 0.1  # shares of the predicted tokens; the others stay as they are


@dataclass(frozen=True)
class Corruption(RowNoise):
    """One draw of the predicted tokens and of their inputs."""

    by_token = ("predicted", "masked", "replaced", "other")

    predicted: Bool[Tensor, "rows length"]
    masked: Bool[Tensor, "rows length"]  # the input is MASK
    replaced: Bool[Tensor, "rows length"]  # the input is `other`
    other: Int64[Tensor, "rows length"]  # random ids


@METHODS.register("mlm")
class MLM(MaskedDiffusion):
    """Masked language model for pretraining: predicts 15% of the tokens and bounds no likelihood.

    Of the predicted tokens, 80% are masked, 10% are replaced by random ones and 10% stay. The loss is the
    mean over the predicted tokens. A diffusion method with the same network continues by `init_from`.
    """

    certificate = "none"  # type: ignore[assignment]
    noise_schedule = "none"
    capabilities = replace(MaskedDiffusion.capabilities, time_bound=False, generate=False)

    @dataclass(frozen=True)
    class Config(Checked):
        ratio: float = option(0.15, gt=0, le=1)  # share of the tokens that are predicted

    def token_loss(self, total: Tensor, chosen: Tensor, weight: Tensor, *inputs: Tensor) -> Tensor:
        return cross_entropy(total, chosen, weight)

    def loss_inputs(self, t: Tensor) -> list[Tensor]:
        # a token is predicted with probability `ratio`, so the mean over draws is the loss per token
        return [torch.full_like(t, 1 / self.config.ratio)]

    def noise(  # type: ignore[override]
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> Corruption:
        length = valid.shape[1]
        predicted = (stream.uniform("mask", length) < self.config.ratio) & valid
        kind = stream.uniform("corruption", length)
        ids = self._ordinary()
        chosen = (stream.uniform("replacement", length) * len(ids)).long()
        alpha = torch.full((len(valid),), 1 - self.config.ratio, dtype=torch.float64)
        return Corruption(
            t=self.schedule.inverse(alpha).detach(),
            predicted=predicted,
            masked=predicted & (kind < MASKED),
            replaced=predicted & (kind >= MASKED) & (kind < MASKED + REPLACED),
            other=ids[chosen],
        )

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        assert isinstance(noise, Corruption)
        z = torch.where(noise.replaced, noise.other, batch.x)
        z = z.masked_fill(noise.masked, self.vocabulary.mask_id)
        inputs, sigma = self.loss_inputs(noise.t), self.condition(noise.t, z.device)
        return token_tensors(self, batch, z, noise.predicted, inputs, sigma)

    def loss_of(self, tensors: Tensors) -> Losses:
        """The loss at the predicted tokens. It has no other terms."""
        total, values = self.loss_at(tensors, self.token_loss)
        return Losses(total, {"masked tokens": values})

    def _ordinary(self) -> Int64[Tensor, "ids"]:
        """The ids that are not special, from which replacements are drawn."""
        v = self.vocabulary
        named = (v.mask_id, v.pad_id, v.bos_id, v.eos_id, *v.label_ids)
        special = torch.tensor([token for token in named if token is not None])
        ids = torch.arange(v.size)
        return ids[~torch.isin(ids, special)]
