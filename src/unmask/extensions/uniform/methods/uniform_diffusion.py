"""Diffusion with uniform tokens in place of masks: noise, bound and denoiser of the methods that use it.

A token can change in every reverse step, so that later steps correct earlier ones.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from unmask.backbones.backbone import Backbone
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.schedule import Learned, Schedule
from unmask.diffusion.time_sampler import (
    Importance,
    RowNoise,
    Stratified,
    TimeFirst,
    TimeSampler,
)
from unmask.errors import UnmaskError
from unmask.extensions.uniform.diffusion.uniform_divergence import UniformMarginals, uniform_prior
from unmask.extensions.uniform.diffusion.uniform_process import UniformProcess
from unmask.methods.compute.chunked_loss import projection_loss
from unmask.methods.compute.token_tensors import spread, token_tensors
from unmask.methods.masked_diffusion import LARGEST_SIGMA
from unmask.methods.method import Capabilities, Losses, Method
from unmask.randomness import RowStream
from unmask.runtime.device import to_device
from unmask.shapes import At, Batch, Inputs, LogProbabilities, Tensors, Tokens, Valid
from unmask.vocabulary import Vocabulary

LEAST_NOISE = 1e-20  # of 1 - alpha, which divides
FILLER = 7919  # a prime: tokens that stand for masks differ from column to column


@dataclass(frozen=True)
class UniformNoise(RowNoise):
    """Randomness of a loss with uniform tokens. The mean over uniform t is E[importance * loss]."""

    importance: Float64[Tensor, "rows"]


@dataclass(frozen=True)
class Replacements(UniformNoise):
    """One draw of the replaced tokens of each row, at time t."""

    by_token: ClassVar[tuple[str, ...]] = ("replaced", "other")

    replaced: Bool[Tensor, "rows length"]
    other: Int64[Tensor, "rows length"]  # uniform tokens, which may equal the true ones


class UniformTokens(Method):
    """A method whose network reads uniform tokens in place of masks."""

    def __init__(self, config: Any, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.process = UniformProcess(self.vocabulary.size, self.vocabulary.mask_id)

    def z_t(self, x: Tokens, noise: Replacements) -> Tokens:
        """The tokens at time t."""
        return torch.where(noise.replaced, noise.other, x)

    def condition(self, t: Float[Tensor, "rows"], device: torch.device) -> Tensor | None:
        """sigma(t), the noise level that the network reads."""
        sigma = self.schedule.sigma(t.double().cpu()).detach()
        return to_device(sigma.clamp(max=LARGEST_SIGMA), device, torch.float32)

    def log_x_theta(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        """log of the distribution of chosen tokens given the others; MASK has probability 0.

        Some token stands for a mask, since the network reads none.
        """
        columns = torch.arange(z_t.shape[1], device=z_t.device) * FILLER % self.process.states
        filler = columns + (columns >= self.vocabulary.mask_id)
        z_t = torch.where(z_t == self.vocabulary.mask_id, filler, z_t)
        with self.arithmetic():
            # features of all tokens: rounding depends on the number of tokens computed
            h = self.backbone.features(z_t, self.condition(t, z_t.device))
            logits = self.backbone.logits(h[at])
            dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
            return subs_log_probs(logits, self.vocabulary.mask_id, dtype)

    def denoiser(self) -> "TokenDenoiser":
        return TokenDenoiser(self.process, self.log_x_theta)


class UniformDiffusion(UniformTokens):
    """Diffusion with uniform tokens; the network predicts a token from the other tokens (leave one out)."""

    certificate = "upper"
    capabilities = Capabilities(states="uniform", noise_level=True)
    sampler = "uniform_ancestral"
    steps: int = 0  # T of the bound; 0 is continuous time

    def __init__(
        self,
        config: Any,
        backbone: Backbone,
        vocabulary: Vocabulary,
        schedule: Schedule,
        time_sampler: TimeSampler,
    ) -> None:
        super().__init__(config, backbone, vocabulary, schedule, time_sampler)
        if isinstance(schedule, Learned):
            raise UnmaskError(
                "a learned schedule needs masked diffusion: set schedule loglinear, or method mdlm"
            )
        self.steps = getattr(config, "steps", 0)

    @abstractmethod
    def loss_inputs(self, t: Float64[Tensor, "rows"]) -> list[Float64[Tensor, "rows"]]:
        """N alpha / noise of the marginals that the loss reads, then inputs of `token_loss`, by row."""

    @abstractmethod
    def token_loss(
        self,
        marginals: UniformMarginals,
        same: Bool[Tensor, "tokens"],
        *inputs: Float[Tensor, "tokens"],
    ) -> Float[Tensor, "tokens"]:
        """The divergence of each token from the network's marginals; `same` is True if z_t is x."""

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> Replacements:
        # in continuous time the variance of the loss is infinite under uniform times
        return self._draw(stream, valid, Stratified(t_min=0.0) if self.steps else Importance())

    @torch.no_grad()
    def _draw(self, stream: RowStream, valid: Valid, times: TimeFirst) -> Replacements:
        """Times, and replaced tokens."""
        length = valid.shape[1]
        t, importance = times.row_times(stream, self.steps)
        chance = (1 - self.schedule.alpha(t))[:, None]
        return Replacements(
            t=t,
            replaced=(stream.uniform("mask", length) < chance) & valid,
            other=self.process.tokens(stream.uniform("replacement", length)),
            importance=importance,
        )

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        assert isinstance(noise, Replacements)
        tensors = self.uniform_tensors(batch, self.z_t(batch.x, noise), noise)
        if full_bound:
            one = torch.ones(1, dtype=torch.float64)
            cost = uniform_prior(self.process.states, self.schedule.alpha(one))
            tensors["prior"] = cost.to(tensors["by_token"]) * batch.scored
        return tensors

    def uniform_tensors(self, batch: Batch, z_t: Tokens, noise: UniformNoise) -> dict[str, Tensor]:
        """Inputs of `loss_of` without a prior. Every target counts, replaced or not."""
        inputs = [noise.importance, *self.loss_inputs(noise.t)]
        sigma = self.condition(noise.t, z_t.device)
        return token_tensors(self, batch, z_t, batch.scored, inputs, sigma)

    def loss_of(self, tensors: Tensors) -> Losses:
        losses = self.divergence(tensors, tensors["z_t"], tensors["z_t"])
        prior = tensors.get("prior")
        return losses if prior is None else losses.plus("prior", prior.sum(), prior)

    def divergence(self, tensors: Tensors, z_t: Tokens, inputs: Inputs) -> Losses:
        """The divergence at the tokens of `token_tensors`; the network reads `inputs` in place of z_t."""
        x, at, by_token = (tensors[name] for name in ("x", "at", "by_token"))
        h = self.backbone.features(inputs, tensors["sigma"], valid=tensors.get("valid"), at=at)
        ids = torch.stack([x.flatten()[at], z_t.flatten()[at]], 1)

        def log_sum(mu: Tensor, same: Tensor, weight: Tensor, ratio: Tensor, *_: Tensor) -> Any:
            relative = mu * ratio[:, None]
            return relative.log1p().sum(1), relative / (1 + relative)

        def loss(
            total: Tensor,
            log_mu: Tensor,
            same: Tensor,
            weight: Tensor,
            ratio: Tensor,
            *rest: Tensor,
        ) -> Tensor:
            marginals = UniformMarginals(self.process.states, ratio, total, *log_mu.exp().unbind(1))
            return weight * self.token_loss(marginals, same, *rest)

        total, values = projection_loss(
            *(self.backbone.head, self.vocabulary.mask_id, h, ids, loss),
            *(ids[:, 0] == ids[:, 1], *by_token.unbind()),
            statistic=log_sum,
        )
        return Losses(total, {"diffusion": spread(values, at, x)})


@dataclass(frozen=True)
class TokenDenoiser:
    """A denoiser with the forward process, from which its samplers compute the reverse steps."""

    process: UniformProcess
    log_x_theta: Denoiser

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        return self.log_x_theta(z_t, t, at)
