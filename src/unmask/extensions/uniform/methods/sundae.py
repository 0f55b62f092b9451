"""SUNDAE (arXiv 2112.06749): a step-unrolled denoising autoencoder of tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.extensions.uniform.methods.uniform_diffusion import Replacements, UniformTokens
from unmask.methods.compute.chunked_loss import drawn_tokens, projection_loss
from unmask.methods.compute.token_tensors import spread, token_tensors
from unmask.methods.masked_diffusion import cross_entropy
from unmask.methods.method import METHODS, Capabilities, Losses
from unmask.options import Checked, option
from unmask.randomness import RowStream
from unmask.shapes import Batch, Tensors, Valid


@dataclass(frozen=True)
class UnrolledNoise(Replacements):
    """One draw of the replaced tokens, and the uniforms of the tokens that later steps draw."""

    by_token = ("replaced", "other", "draws")

    draws: Float64[Tensor, "rows length steps"]


@METHODS.register("sundae")
class SUNDAE(UniformTokens):
    """Denoising autoencoder of tokens, trained on its own output of a first step; it has no likelihood."""

    certificate = "none"
    capabilities = Capabilities(states="text", score=False)
    sampler = "unrolled"
    noise_schedule = "none"

    @dataclass(frozen=True)
    class Config(Checked):
        # steps of the loss; each step after the first reads drawn tokens
        unrolled: int = option(2, ge=1)

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> UnrolledNoise:
        """Uniform shares of replaced tokens, stratified over the rows."""
        length = valid.shape[1]
        share = (stream.strata() + stream.uniform("time", 1)[:, 0]) / stream.total
        draws = [stream.uniform(f"draw {step}", length) for step in range(1, self.config.unrolled)]
        return UnrolledNoise(
            t=share,
            replaced=(stream.uniform("mask", length) < share[:, None]) & valid,
            other=self.process.tokens(stream.uniform("replacement", length)),
            importance=torch.ones_like(share),
            draws=torch.stack(draws, -1) if draws else torch.zeros(*valid.shape, 0).double(),
        )

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        assert isinstance(noise, UnrolledNoise)
        z, weight = self.z_t(batch.x, noise), torch.full_like(noise.t, 1 / self.config.unrolled)
        sigma = self.condition(noise.t, z.device)
        tensors = token_tensors(self, batch, z, batch.scored, [weight], sigma)
        return tensors | {"draws": noise.draws.flatten(0, 1)[tensors["at"]]}

    def loss_of(self, tensors: Tensors) -> Losses:
        """The mean cross-entropy of the steps at each target. The drawn tokens have no gradient."""
        x, z, at, draws = (tensors[name] for name in ("x", "z_t", "at", "draws"))
        sigma, valid, weight = tensors.get("sigma"), tensors.get("valid"), tensors["by_token"][0]
        ids, mask_id = x.flatten()[at], self.vocabulary.mask_id
        totals, values = [], []
        for step in range(self.config.unrolled):
            h = self.backbone.features(z, sigma, valid=valid, at=at)
            total, losses = projection_loss(
                self.backbone.head, mask_id, h, ids[:, None], cross_entropy, weight
            )
            totals.append(total)
            values.append(losses)
            if step < self.config.unrolled - 1:
                drawn = drawn_tokens(self.backbone, mask_id, h.detach(), draws[:, step])
                drawn = torch.where(weight > 0, drawn, z.flatten()[at])  # only targets change
                z = z.flatten().index_copy(0, at, drawn).view(x.shape)
        by_token = spread(torch.stack(values).sum(0), at, x)
        return Losses(torch.stack(totals).sum(), {"unrolled": by_token})

    def condition(self, t: Float[Tensor, "rows"], device: torch.device) -> Tensor | None:
        """A constant for a network that reads noise levels: the share of replaced tokens is unknown."""
        return torch.zeros(len(t), device=device) if self.backbone.time_conditioning else None
