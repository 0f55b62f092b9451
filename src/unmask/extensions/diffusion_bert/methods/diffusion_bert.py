"""DiffusionBERT (arXiv 2211.15029) in a valid form: each token has a noise schedule by its frequency."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.time_sampler import (
    Importance,
    RowNoise,
    Stratified,
    TimeFirst,
    TimeSampler,
)
from unmask.methods.compute.chunked_loss import projection_loss
from unmask.methods.compute.token_tensors import spread, token_tensors
from unmask.methods.masked_diffusion import MaskedDiffusion, cross_entropy
from unmask.methods.method import METHODS, Losses, on_device
from unmask.options import Checked, option
from unmask.randomness import RowStream
from unmask.shapes import At, Batch, LogProbabilities, Tensors, Tokens, Valid


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
        self._copy: tuple[Any, Tensor] | None = None

    def on_host(self) -> Float[Tensor, "vocabulary"]:
        """`nats` on the CPU; copied only after a change, since a copy waits for the device."""
        state = self.nats.data_ptr(), self.nats._version, self.nats.dtype
        if self._copy is None or self._copy[0] != state:
            self._copy = state, self.nats.cpu()
        return self._copy[1]


def information_of(nats: Float[Tensor, "vocabulary"]) -> Float[Tensor, "vocabulary"]:
    """1 - mean / -log p of each token, with the mean over the corpus, in [-1, 1]."""
    mean = (torch.exp(-nats) * nats).sum()
    return (1 - mean / nats).clamp(-1, 1)


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
    class Config(Checked):
        # lambda: difference between the schedules of rare and frequent tokens
        weight: float = option(0.3, ge=0, lt=1 / math.pi)
        # smallest time of training; smaller ones add variance to the gradient
        t_min: float = option(1e-3, ge=0, lt=1)

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.frequencies = TokenFrequencies(self.vocabulary.size)

    def set_frequencies(self, counts: Float64[Tensor, "vocabulary"]) -> None:
        counts = counts + 1
        self.frequencies.nats.copy_(-(counts / counts.sum()).log())

    @property
    def information(self) -> Float[Tensor, "vocabulary"]:
        """I_v of each token: positive if the token is rarer than the mean token of the corpus."""
        return information_of(self.frequencies.nats)

    def noise(  # type: ignore[override]
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> MaskUniforms:
        # under uniform times the variance of the loss is infinite
        return self._draw(stream, valid, Importance())

    def training_noise(self, stream: RowStream, valid: Valid) -> MaskUniforms:
        """Noise without the smallest times. The bound covers all times and has no other terms."""
        return self._draw(stream, valid, Stratified(self.config.t_min))

    def _draw(self, stream: RowStream, valid: Valid, times: TimeFirst) -> MaskUniforms:
        t, importance = times.row_times(stream)
        uniforms = stream.uniform("mask", valid.shape[1]).masked_fill(~valid.cpu(), 1.0)
        return MaskUniforms(t, uniforms, importance)

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        assert isinstance(noise, MaskUniforms)
        own = information_of(self.frequencies.on_host())[batch.x]
        return self._masked_under(own, batch, noise) | {"t": noise.t.to(own.dtype)}

    def published_elbo(self, batch: Batch, noise: RowNoise | None) -> Losses:
        """The published ELBO, whose certificate is `none`: it can fall below the entropy of the text.

        The schedule of a token depends on the other tokens of its row, and the loss is w_x (-log mu_x).

        Args:
            batch: The rows, on the CPU.
            noise: Randomness from `noise`.

        Returns:
            The value and its terms per token.
        """
        assert isinstance(noise, MaskUniforms)
        tensors = self._masked_under(self.row_information(batch.x, batch.valid), batch, noise)
        losses = self.loss_of(on_device(tensors, self.device))
        return Losses(losses.total, {"published elbo": losses.terms["diffusion"]})

    def row_information(self, x: Tokens, valid: Valid) -> Float[Tensor, "rows length"]:
        """1 - mean / -log p of each token, with the mean over its row, as in the paper.

        Args:
            x: Token ids.
            valid: True at tokens that are not padding.

        Returns:
            The information of each token, in [-1, 1].
        """
        nats = self.frequencies.on_host()[x]
        mean = (nats * valid).sum(1, keepdim=True) / valid.sum(1, keepdim=True).clamp(min=1)
        return (1 - mean / nats).clamp(-1, 1)

    def _masked_under(
        self, own: Float[Tensor, "rows length"], batch: Batch, noise: MaskUniforms
    ) -> dict[str, Tensor]:
        """Tensors of the tokens that are masked under schedules with the information `own`."""
        t = noise.t.to(own.dtype)[:, None]
        alpha = spindle_alpha(t, own, self.config.weight)
        masked = noise.uniforms.to(own.dtype) < 1 - alpha
        z_t = batch.x.masked_fill(masked, self.vocabulary.mask_id)
        sigma = self.condition(noise.t, z_t.device)
        tensors = token_tensors(self, batch, z_t, masked, [noise.importance], sigma)
        weight, at = tensors["by_token"], tensors["at"]
        rate = spindle_rate(t, own, self.config.weight).flatten()[at]
        return tensors | {"by_token": torch.cat([weight, rate.to(weight)[None]])}

    def loss_of(self, tensors: Tensors) -> Losses:
        """w_x (-log mu_x) - w_x + sum_v w_v mu_v at each masked token, with w = -alpha' / (1 - alpha).

        Without the times, it is the published loss.
        """
        x, at, by_token = (tensors[name] for name in ("x", "at", "by_token"))
        sigma, valid = tensors.get("sigma"), tensors.get("valid")
        h = self.backbone.features(tensors["z_t"], sigma, valid=valid, at=at)
        head, mask_id, ids = self.backbone.head, self.vocabulary.mask_id, x.flatten()[at][:, None]
        if "t" not in tensors:
            total, values = projection_loss(head, mask_id, h, ids, cross_entropy, by_token.prod(0))
            return Losses(total, {"diffusion": spread(values, at, x)})
        t = tensors["t"][:, None]
        rates = spindle_rate(t, self.information.to(t), self.config.weight)  # w_v of each row

        def mean_rate(mu: Tensor, weight: Tensor, rate: Tensor, row: Tensor) -> Any:
            wide = nn.functional.pad(rates, (0, mu.shape[1] - rates.shape[1]))
            share = mu * wide.to(mu)[row]
            return share.sum(1), share

        def loss(mean: Tensor, log_mu: Tensor, weight: Tensor, rate: Tensor, _: Tensor) -> Tensor:
            return weight * (mean - rate * (1 + log_mu[:, 0]))

        rows = (*by_token.unbind(), at // x.shape[1])
        total, values = projection_loss(head, mask_id, h, ids, loss, *rows, statistic=mean_rate)
        return Losses(total, {"diffusion": spread(values, at, x)})

    def token_loss(self, total: Tensor, chosen: Tensor, weight: Tensor, *inputs: Tensor) -> Tensor:
        return cross_entropy(total, chosen, weight)

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


def spindle_alpha(t: Tensor, information: Tensor, weight: float) -> Tensor:
    """alpha(t) = 1 - t - weight sin(pi t) information, of tokens with an information in [-1, 1]."""
    return 1 - t - weight * torch.sin(math.pi * t) * information


def spindle_rate(t: Tensor, information: Tensor, weight: float) -> Tensor:
    """-alpha'(t) / (1 - alpha(t)) of `spindle_alpha`."""
    slope = 1 + weight * math.pi * torch.cos(math.pi * t) * information
    return slope / (t + weight * torch.sin(math.pi * t) * information)
