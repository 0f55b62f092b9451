"""Diffusion with uniform tokens in place of masks: noise, bound and denoiser of the methods that use it.

A token can change in every reverse step, so that later steps correct earlier ones.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from unmask.backbones.backbone import Backbone
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.nelbo import UniformMarginals, uniform_prior
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.process import UniformProcess
from unmask.diffusion.schedule import Learned, Schedule
from unmask.diffusion.time_sampler import (
    Importance,
    RowNoise,
    Stratified,
    TimeFirst,
    TimeSampler,
)
from unmask.errors import UnmaskError
from unmask.methods.compute.chunked_loss import projection_loss
from unmask.methods.masked_diffusion import LARGEST_SIGMA, token_tensors
from unmask.methods.method import Capabilities, Losses, Method, padding, spread, targets
from unmask.randomness import RowStream
from unmask.runtime.device import to_device
from unmask.shapes import At, Inputs, LogProbabilities, Tokens, Valid
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
    capabilities = Capabilities(uniform=True, noise_level=True)
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

    def latents(self, x: Tokens, noise: UniformNoise) -> tuple[Tokens, Inputs]:
        """z_t, and the inputs of the network in its place."""
        assert isinstance(noise, Replacements)
        replaced = to_device(noise.replaced, x.device)
        z_t = torch.where(replaced, to_device(noise.other, x.device), x)
        return z_t, z_t

    def nll(
        self,
        x: Tokens,
        valid: Valid,
        noise: RowNoise | None,
        full_bound: bool = False,
        given: Valid | None = None,
    ) -> Losses:
        """The divergence at each target, replaced or not. Given tokens are not replaced."""
        assert isinstance(noise, UniformNoise)
        z_t, inputs = self.latents(x, noise)
        rows, columns = targets(valid, given).cpu().nonzero(as_tuple=True)
        at = to_device(rows * x.shape[1] + columns, x.device)
        by_token = [
            to_device(part.detach()[rows], x.device)
            for part in (noise.importance, *self.loss_inputs(noise.t))
        ]
        sigma, seen = self.condition(noise.t, x.device), padding(valid, x.device)
        total, values = self._loss(x, z_t, sigma, seen, at, by_token, inputs)
        terms = {"diffusion": spread(values, at, x)}
        if full_bound:
            one = torch.ones(1, dtype=torch.float64)
            cost = float(uniform_prior(self.process.states, self.schedule.alpha(one)))
            terms["prior"] = cost * to_device(targets(valid, given), x.device).to(values)
            total = total + terms["prior"].sum()
        return Losses(total, terms)

    def loss_tensors(
        self, x: Tokens, valid: Valid, given: Valid | None, stream: RowStream
    ) -> dict[str, Tensor] | None:
        scored = targets(valid, given)
        return self.noise_tensors(x, valid, scored, self.training_noise(stream, scored))

    def noise_tensors(
        self, x: Tokens, valid: Valid, scored: Valid, noise: RowNoise | None
    ) -> dict[str, Tensor]:
        """Inputs of `loss_of` for a draw of the noise; `scored` is True at the tokens of the loss."""
        assert isinstance(noise, UniformNoise)
        z_t, inputs = self.latents(x, noise)[0], self.loss_inputs(noise.t)
        sigma = self.condition(noise.t, x.device)
        return token_tensors(x, z_t, scored, [noise.importance, *inputs], valid, sigma)

    def loss_of(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        x, z_t, at, by_token = (tensors[name] for name in ("x", "z_t", "at", "by_token"))
        seen = tensors.get("valid")
        return self._loss(x, z_t, tensors["sigma"], seen, at, by_token.unbind())[0]

    def _loss(
        self,
        x: Tokens,
        z_t: Tokens,
        sigma: Tensor | None,
        valid: Valid | None,
        at: Int[Tensor, "tokens"],
        by_token: Sequence[Tensor],
        inputs: Inputs | None = None,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "tokens"]]:
        """Sum and values of the divergence at some tokens, with a weight and `loss_inputs` of each.

        The network reads z_t, or `inputs` in its place.
        """
        read = z_t if inputs is None else inputs
        h = self.backbone.features(read, sigma, valid=valid, at=at)
        ids = torch.stack([x.flatten()[at], z_t.flatten()[at]], 1)
        dtype = torch.float64 if h.dtype == torch.float64 else torch.float32
        numbers = [part.to(dtype) for part in by_token]

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

        return projection_loss(
            *(self.backbone.head, self.vocabulary.mask_id, h, ids, loss),
            *(ids[:, 0] == ids[:, 1], *numbers),
            statistic=log_sum,
        )


@dataclass(frozen=True)
class TokenDenoiser:
    """A denoiser with the forward process, from which its samplers compute the reverse steps."""

    process: UniformProcess
    log_x_theta: Denoiser

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        return self.log_x_theta(z_t, t, at)
