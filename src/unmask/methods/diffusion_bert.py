"""DiffusionBERT (arXiv 2211.15029) in a valid form: each token has a noise schedule by its frequency."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.schedule import spindle_alpha, spindle_rate
from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.errors import UnmaskError
from unmask.methods.compute.chunked_loss import RowLoss, distribution_loss
from unmask.methods.masked_diffusion import MaskedDiffusion, cross_entropy
from unmask.methods.method import METHODS, Losses, padding, targets
from unmask.randomness import RowStream
from unmask.runtime.device import to_device
from unmask.shapes import At, LogProbabilities, Tokens, Valid


@dataclass(frozen=True)
class MaskUniforms(RowNoise):
    """A time of each row and a uniform of each token; a token is masked if its uniform is below 1 - alpha."""

    by_token = ("uniforms",)

    uniforms: Float64[Tensor, "rows length"]  # 1 at tokens that are never masked
    importance: Float64[Tensor, "rows"]


class TokenFrequencies(nn.Module):
    """Frequencies of the tokens of a corpus, saved with the weights. At first all are equal."""

    nats: Tensor  # -log p of each token

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("nats", torch.full((size,), math.log(size)))


@METHODS.register("diffusion_bert")
class DiffusionBERT(MaskedDiffusion):
    """Masked diffusion that masks rare tokens first: a schedule of each token by its frequency.

    alpha_v(t) = 1 - t - weight sin(pi t) I_v, where I_v = 1 - mean / -log p_v is in [-1, 1]. The paper
    takes the mean over the tokens of a row. Then the masks reveal the row, and its ELBO is no bound.
    Here it is the mean over the corpus. With weight 0 the method is MDLM.
    """

    capabilities = replace(
        MaskedDiffusion.capabilities, time_bound=False, any_order=False, token_schedule=True
    )
    sampler = "token_schedule"
    noise_schedule = "per token"

    @dataclass(frozen=True)
    class Config:
        weight: float = 0.3  # lambda: difference between the schedules of rare and frequent tokens
        t_min: float = 1e-3  # smallest time of training; smaller ones add variance to the gradient

        def __post_init__(self) -> None:
            if not 0 <= self.weight < 1 / math.pi:
                raise UnmaskError(f"weight must lie in [0, 1/pi), not {self.weight}")
            if not 0 <= self.t_min < 1:
                raise UnmaskError(f"t_min must lie in [0, 1), not {self.t_min}")

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.frequencies = TokenFrequencies(self.vocabulary.size)

    def set_frequencies(self, counts: Float64[Tensor, "vocabulary"]) -> None:
        counts = counts + 1
        self.frequencies.nats.copy_(-(counts / counts.sum()).log())

    @property
    def information(self) -> Float[Tensor, "vocabulary"]:
        """I_v of each token: positive if the token is rarer than the mean token of the corpus."""
        nats = self.frequencies.nats
        mean = (torch.exp(-nats) * nats).sum()
        return (1 - mean / nats).clamp(-1, 1)

    def noise(  # type: ignore[override]
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> MaskUniforms:
        return self._draw(stream, valid, 0.0)

    def training_noise(self, stream: RowStream, valid: Valid) -> MaskUniforms:
        """Noise without the smallest times. The bound covers all times and has no other terms."""
        return self._draw(stream, valid, self.config.t_min)

    def _draw(self, stream: RowStream, valid: Valid, t_min: float) -> MaskUniforms:
        t = (stream.strata() + 1 - stream.uniform("time", 1)[:, 0]) / stream.total
        t = t_min + (1 - t_min) * t
        uniforms = stream.uniform("mask", valid.shape[1]).masked_fill(~valid.cpu(), 1.0)
        return MaskUniforms(t, uniforms, torch.full_like(t, 1 - t_min))

    def noise_key(self, noise: RowNoise) -> None:  # type: ignore[override]
        return None

    def nll(
        self,
        x: Tokens,
        valid: Valid,
        noise: RowNoise | None,
        full_bound: bool = False,
        given: Valid | None = None,
    ) -> Losses:
        """w_x (-log mu_x) - w_x + sum_v w_v mu_v at each masked token, with w = -alpha' / (1 - alpha)."""
        information = self.information

        def token_loss(mu: Tensor, x: Tensor, masked: Tensor, t: Tensor, own: Tensor) -> Tensor:
            rates = spindle_rate(t[:, None], information.to(mu), self.config.weight)
            rate = rates.gather(1, x[:, None])[:, 0]
            log_mu = mu.gather(1, x[:, None])[:, 0].clamp(min=1e-38).log()
            return masked * ((rates * mu).sum(1) - rate * (1 + log_mu))

        own = information[x]
        return self._loss(x, valid, noise, given, own, token_loss, "diffusion")

    def published_elbo(self, x: Tokens, valid: Valid, noise: RowNoise | None) -> Losses:
        """The published ELBO, whose certificate is `none`: it can fall below the entropy of the text.

        The schedule of a token depends on the other tokens of its row, and the loss is w_x (-log mu_x).

        Args:
            x: Token ids.
            valid: True at tokens that are not padding.
            noise: Randomness from `noise`.

        Returns:
            The value and its terms per token.
        """

        def token_loss(mu: Tensor, x: Tensor, masked: Tensor, t: Tensor, own: Tensor) -> Tensor:
            rate = spindle_rate(t, own, self.config.weight)
            return masked * -rate * mu.gather(1, x[:, None])[:, 0].clamp(min=1e-38).log()

        own = self.row_information(x, to_device(valid, x.device))
        return self._loss(x, valid, noise, None, own, token_loss, "published elbo")

    def row_information(self, x: Tokens, valid: Valid) -> Float[Tensor, "rows length"]:
        """1 - mean / -log p of each token, with the mean over its row, as in the paper.

        Args:
            x: Token ids.
            valid: True at tokens that are not padding.

        Returns:
            The information of each token, in [-1, 1].
        """
        nats = self.frequencies.nats[x]
        mean = (nats * valid).sum(1, keepdim=True) / valid.sum(1, keepdim=True).clamp(min=1)
        return (1 - mean / nats).clamp(-1, 1)

    def _loss(
        self,
        x: Tokens,
        valid: Valid,
        noise: RowNoise | None,
        given: Valid | None,
        own: Float[Tensor, "rows length"],
        token_loss: Any,
        name: str,
    ) -> Losses:
        """Losses of the tokens that are masked under schedules with the information `own`."""
        assert isinstance(noise, MaskUniforms)
        times = to_device(noise.t, x.device, own.dtype)
        alpha = spindle_alpha(times[:, None], own, self.config.weight)
        masked = to_device(noise.uniforms, x.device, own.dtype) < 1 - alpha
        z_t = x.masked_fill(masked, self.vocabulary.mask_id)
        rows, columns = targets(valid, given).cpu().nonzero(as_tuple=True)
        at = to_device(rows * x.shape[1] + columns, x.device)
        t, importance = (
            to_device(part[rows], x.device, own.dtype) for part in (noise.t, noise.importance)
        )
        sigma = self.condition(noise.t, x.device)
        h = self.backbone.features(z_t, sigma, valid=padding(valid, x.device), at=at)
        parts = [each.flatten()[at] for each in (x, masked, own)]
        values = distribution_loss(
            self.backbone, self.vocabulary.mask_id, h, token_loss, *parts[:2], t, parts[2]
        )
        values = values * importance.to(values)
        by_token = values.new_zeros(x.numel()).index_copy(0, at, values.detach()).view(x.shape)
        return Losses(values.sum(), {name: by_token})

    def loss_tensors(
        self, x: Tokens, valid: Valid, given: Valid | None, stream: RowStream
    ) -> dict[str, Tensor] | None:
        return None  # the loss reads whole distributions

    def row_loss(self) -> RowLoss:
        return cross_entropy

    def loss_inputs(self, t: Float64[Tensor, "rows"]) -> list[Float64[Tensor, "rows"]]:
        """The weight of a masked token of mean information."""
        return [1 / t]

    def denoiser(self) -> "ScheduledDenoiser":
        return ScheduledDenoiser(self, super().denoiser())


@dataclass(frozen=True)
class ScheduledDenoiser:
    """A denoiser with the schedules of the tokens."""

    method: DiffusionBERT
    log_x_theta: Denoiser

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        return self.log_x_theta(z_t, t, at)

    def reveal_probability(self, s: float, t: float) -> Float[Tensor, "vocabulary"]:
        """The probability that a masked token of each id is revealed in the step from t to s."""
        weight, information = self.method.config.weight, self.method.information
        alpha_s, alpha_t = (
            spindle_alpha(torch.tensor(each, device=information.device), information, weight)
            for each in (s, t)
        )
        return (alpha_s - alpha_t) / (1 - alpha_t)
