"""Autoregressive baseline: exact likelihood, and sampling with a KV cache."""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.time_sampler import RowNoise
from unmask.methods.compute.cached_decoding import CachedDecoder, CausalMethod, Then
from unmask.methods.compute.chunked_loss import projection_loss
from unmask.methods.compute.token_tensors import chosen_first, spread
from unmask.methods.masked_diffusion import cross_entropy
from unmask.methods.method import (
    METHODS,
    Capabilities,
    Losses,
    check_lengths,
    without_last_padding,
)
from unmask.shapes import At, Batch, LogProbabilities, Tensors, Tokens, Valid


@METHODS.register("autoregressive")
class Autoregressive(CausalMethod):
    """Autoregressive model, with an exact likelihood."""

    certificate = "exact"
    capabilities = Capabilities(causal=True, infill=False)
    sampler = "left_to_right"
    noise_schedule = "none"

    @dataclass(frozen=True)
    class Config:
        given_first: bool = False  # True: a row's first token is given; False: MASK predicts it

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        # the network predicts token i at input position i - lag
        self.lag = int(self.config.given_first)
        self._idle: list[CachedDecoder] = []

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        check_lengths(self.backbone, batch.valid, batch.given)
        x, seen = batch.x, self._seen(batch.valid)
        at, count = chosen_first(self._predictors(batch.scored), self.few_shapes)
        weights = (torch.arange(len(at)) < count).float()
        predicted = (at + self.lag).clamp(max=x.numel() - 1)
        ids = x.flatten()[predicted]
        if batch.weight is not None:
            weights *= batch.weight.flatten()[predicted]
        if not bool(seen.all()):  # padding before a text must not be context
            x = x.masked_fill(~seen, self.vocabulary.mask_id)
        tensors = {"x": x, "at": at, "ids": ids, "weights": weights}
        return tensors if bool(seen.all()) else tensors | {"valid": seen}

    def loss_of(self, tensors: Tensors) -> Losses:
        """-log p(x_i | x_<i) of each token; the first token is given, or predicted from MASK."""
        x, at, valid = tensors["x"], tensors["at"], tensors.get("valid")
        h = self.backbone.features(self.inputs(x), valid=valid, at=at)
        total, values = projection_loss(
            *(self.backbone.head, self.vocabulary.mask_id, h, tensors["ids"][:, None]),
            *(cross_entropy, tensors["weights"]),
        )
        by_token = F.pad(spread(values, at, x), (self.lag, -self.lag))  # of the predicted tokens
        return Losses(total, {"nll": by_token})

    def _seen(self, valid: Valid) -> Valid:
        """False at padding that must be hidden. A causal network never reads padding after a text.

        An encoder of sources reads both directions, so all padding is hidden from it.
        """
        return valid if self.backbone.pairs else without_last_padding(valid)

    def _predictors(self, scored: Valid) -> Valid:
        """True at the input positions that predict the scored tokens."""
        return F.pad(scored, (-self.lag, self.lag))

    def denoiser(self) -> Denoiser:
        return _CachedDenoiser(self)

    def log_next(self, h: Float[Tensor, "tokens width"]) -> LogProbabilities:
        """log p(x_i | x_<i) from features. MASK has probability 0."""
        return subs_log_probs(self.backbone.logits(h), self.vocabulary.mask_id, torch.float32)

    def inputs(self, x: Tokens) -> Tokens:
        """Input of the network: the rows if the first token is given, else MASK and all but the last token.

        MASK marks the start, since it is never part of a text.
        """
        if self.lag:
            return x
        return torch.cat([x.new_full((len(x), 1), self.vocabulary.mask_id), x[:, :-1]], 1)

    def acquire_decoder(self, rows: int, length: int) -> CachedDecoder:
        """A cached decoder for one batch: the idle one with its CUDA graphs if its shape fits, or a new one.

        Args:
            rows: Number of rows of the batch.
            length: Length of a row in tokens.

        Returns:
            A decoder with an empty state, which no other batch uses.
        """
        decoder = self._idle.pop() if self._idle else None
        if decoder is None or decoder.shape_and_edition != (rows, length, self.edition):
            return CachedDecoder(self, rows, length)
        decoder.crop(0)
        return decoder

    def release_decoder(self, decoder: CachedDecoder) -> None:
        """Keeps a decoder for the next batch; without CUDA graphs, drops it.

        Args:
            decoder: A decoder from `acquire_decoder`.
        """
        if self.serving.fixed:
            self._idle[:] = [decoder]


class _BatchDecoder:
    """Decodes one batch. The first call acquires a decoder; deletion of this object releases it."""

    def __init__(self, method: Autoregressive) -> None:
        self._method = method
        self._decoder: CachedDecoder | None = None

    def __call__(
        self,
        z: Tokens,
        column: int,
        rows: Int[Tensor, "tokens"],
        then: Then | None = None,
        *more: Tensor,
    ) -> Tensor:
        if self._decoder is None:
            self._decoder = self._method.acquire_decoder(*z.shape)
            weakref.finalize(self, self._method.release_decoder, self._decoder).atexit = False
        return self._decoder(z, column, rows, then, *more)

    def crop(self, length: int) -> None:
        """Crops the state to the tokens that predict the first `length` columns."""
        if self._decoder is not None:
            self._decoder.crop(length)


class _CachedDenoiser:
    """log p(x_i | x_<i) at one column. A call computes only tokens that are not cached or have changed."""

    def __init__(self, method: Autoregressive) -> None:
        self._method = method
        self._decoder, self._cached = self.decoder(), torch.empty(0, 0, dtype=torch.long)

    def decoder(self) -> _BatchDecoder:
        """A decoder for columns in ascending order. It does not check its cached tokens for changes."""
        return _BatchDecoder(self._method)

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        rows, columns = at
        column = int(columns[0])
        if self._cached.shape != z_t.shape:
            self._decoder, self._cached = self.decoder(), z_t[:, :0]
        shared = min(self._cached.shape[1], column)
        same = (self._cached[:, :shared] == z_t[:, :shared]).all(0).long().cumprod(0).sum()
        self._decoder.crop(int(same) + 1)
        self._cached = z_t.clone()
        return self._decoder(z_t, column, rows)
