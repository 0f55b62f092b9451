"""Autoregressive baseline: exact likelihood, and sampling with a KV cache."""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.methods.compute.cached_decoding import CachedDecoder, CausalMethod, Then
from unmask.methods.compute.chunked_loss import projection_loss
from unmask.methods.masked_diffusion import cross_entropy
from unmask.methods.method import METHODS, Capabilities, Losses, padding, spread, targets
from unmask.randomness import RowStream
from unmask.runtime.device import to_device
from unmask.shapes import At, LogProbabilities, Tokens, Valid


@METHODS.register("autoregressive")
class Autoregressive(CausalMethod):
    """Autoregressive model, with an exact likelihood."""

    certificate = "exact"
    capabilities = Capabilities(causal=True, infill=False)
    sampler = "left_to_right"

    @dataclass(frozen=True)
    class Config:
        given_first: bool = False  # True: a row's first token is given; False: MASK predicts it

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        # offset in the network's input from the position that predicts a token to the token
        self.lag = int(self.config.given_first)
        self._idle: list[CachedDecoder] = []

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> None:
        return None

    def nll(
        self,
        x: Tokens,
        valid: Valid,
        noise: RowNoise | None,
        full_bound: bool = False,
        given: Valid | None = None,
    ) -> Losses:
        """-log p(x_i | x_<i) of each token; the first token is given, or predicted from MASK."""
        real = padding(valid, x.device)
        # padding before a text must not be context
        text = x if real is None else x.masked_fill(~real, self.vocabulary.mask_id)
        wanted = targets(valid, given)
        if self.lag:
            wanted = wanted & (torch.arange(x.shape[1]) > 0)
        at = to_device(wanted.flatten().nonzero()[:, 0], x.device)
        h = self.backbone.features(self.inputs(text), valid=real, at=at - self.lag)
        ids = x.flatten()[at][:, None]
        ones = torch.ones(len(at), device=x.device)
        total, losses = projection_loss(
            self.backbone.head, self.vocabulary.mask_id, h, ids, cross_entropy, ones
        )
        return Losses(total, {"nll": spread(losses, at, x)})

    def denoiser(self) -> Denoiser:
        return _CachedDenoiser(self)

    def log_next(self, h: Float[Tensor, "tokens width"]) -> LogProbabilities:
        """log p(x_i | x_<i) from features. MASK has probability 0."""
        return subs_log_probs(self.backbone.logits(h), self.vocabulary.mask_id, torch.float32)

    def inputs(self, x: Tokens) -> Tokens:
        """Input of the network: the rows, or the rows shifted right by one behind MASK.

        MASK marks the start, since it is never part of a text.
        """
        if self.lag:
            return x
        return torch.cat([x.new_full((len(x), 1), self.vocabulary.mask_id), x[:, :-1]], 1)

    def lend(self, rows: int, length: int) -> CachedDecoder:
        """A cached decoder for one text: the last one with its CUDA graphs if it fits, or a new one.

        Args:
            rows: Number of rows of the batch.
            length: Length of a row in tokens.

        Returns:
            A decoder with an empty state, which no other text uses.
        """
        reader = self._idle.pop() if self._idle else None
        if reader is None or reader.kind != (rows, length, self.edition):
            return CachedDecoder(self, rows, length)
        reader.crop(0)
        return reader

    def take_back(self, reader: CachedDecoder) -> None:
        """Keeps a decoder for the next text.

        Args:
            reader: A decoder from `lend`.
        """
        if self.serving.fixed:
            self._idle[:] = [reader]


class _Reading:
    """Cached decoding of one batch, with a decoder from `lend`, given back at the end."""

    def __init__(self, method: Autoregressive) -> None:
        self._method = method
        self._reader: CachedDecoder | None = None

    def __call__(
        self,
        z: Tokens,
        column: int,
        rows: Int[Tensor, "tokens"],
        then: Then | None = None,
        *more: Tensor,
    ) -> Tensor:
        if self._reader is None:
            self._reader = self._method.lend(*z.shape)
            weakref.finalize(self, self._method.take_back, self._reader).atexit = False
        return self._reader(z, column, rows, then, *more)

    def crop(self, length: int) -> None:
        """Crops the state to the tokens that predict the first `length` columns."""
        if self._reader is not None:
            self._reader.crop(length)


class _CachedDenoiser:
    """log p(x_i | x_<i) at one column; a call computes only tokens that changed since the last."""

    def __init__(self, method: Autoregressive) -> None:
        self._method = method
        self._reading, self._read = self.reading(), torch.empty(0, 0, dtype=torch.long)

    def reading(self) -> _Reading:
        """A decoder for columns in ascending order. It does not compare its state with the rows."""
        return _Reading(self._method)

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        rows, columns = at
        column = int(columns[0])
        if self._read.shape != z_t.shape:
            self._reading, self._read = self.reading(), z_t[:, :0]
        shared = min(self._read.shape[1], column)
        same = (self._read[:, :shared] == z_t[:, :shared]).all(0).long().cumprod(0).sum()
        self._reading.crop(int(same) + 1)
        self._read = z_t.clone()
        return self._reading(z_t, column, rows)
