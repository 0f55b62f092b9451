"""Denoiser of networks with an encoder: each source is encoded once for all steps of a sampler."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.backbones.layers.state import Source, SourceState
from unmask.methods.compute.graph_denoiser import MOST_ELEMENTS
from unmask.runtime.cuda_graphs import CudaGraphs, doubled, rounded
from unmask.shapes import At, LogProbabilities, Tokens

_ALIGNED = 16  # targets are padded to a multiple of this length, so that CUDA graphs are few


@dataclass
class EncodedSources:
    """Sources that the encoder has read in one generation."""

    tokens: Tensor | None = None  # the sources [sources, width], -1 behind their EOS
    encoded: Source | None = None
    last: tuple[Tensor, Source] | None = None  # sources of the last call, row by row


@dataclass(frozen=True)
class SourceDenoiser:
    """log x_theta of a masked diffusion whose network has an encoder.

    The rows of a call may be any rows whose sources occurred before, or new ones. New sources are
    encoded and kept. `columns` is the most tokens of a target; None for those of the network.
    """

    method: Any
    graphs: CudaGraphs
    known: EncodedSources = field(default_factory=EncodedSources)
    columns: int | None = None

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        method, state = self.method, self.encoded(z_t)
        sigma = method.condition(t, z_t.device)
        with method.arithmetic():
            if not method.serving.fixed:
                h = method.backbone.features(z_t, sigma, state=state)
                return method.log_mean(h[at])
            inputs = [z_t, *state.source, *([] if sigma is None else [sigma])]
            sizes, count = [rounded(len(z_t))] * len(inputs), len(at[0])
            padded = doubled(count)
            if padded * method.vocabulary.size > MOST_ELEMENTS:
                features = self.graphs(("features", self.columns), self._features)
                return method.log_mean(features(inputs, sizes, len(z_t))[at])
            log_x_theta = self.graphs(("log x_theta", self.columns), self._log_x_theta)
            return log_x_theta([*at, *inputs], [padded, padded, *sizes], count)

    def up_to(self, tokens: int) -> "SourceDenoiser":
        """A denoiser of targets with at most this many tokens, EOS included."""
        return replace(self, columns=-(-tokens // _ALIGNED) * _ALIGNED)

    def log_lengths(self, z_t: Tokens) -> Float[Tensor, "rows lengths"]:
        """Log-probabilities of the number of tokens of each target, EOS included, from 1 on."""
        return self.encoded(z_t).source.lengths.log_softmax(-1)

    def encoded(self, z_t: Tokens) -> SourceState:
        """The encoded sources of rows; the encoder reads only sources that are new."""
        tokens, known = self._sources(z_t), self.known
        if known.last is not None and torch.equal(tokens, known.last[0]):
            return SourceState(known.last[1], self.columns)
        found = _matches(tokens, known.tokens)
        new = ~found.any(1)
        if bool(new.any()):
            self._encode(tokens[new].unique(dim=0))
            found = _matches(tokens, known.tokens)
        assert known.encoded is not None
        source = known.encoded.rows(found.int().argmax(1))
        known.last = tokens, source
        return SourceState(source, self.columns)

    def _sources(self, z_t: Tokens) -> Int[Tensor, "rows source"]:
        """The sources of rows, with -1 behind their EOS; the first token if a row has no EOS."""
        longest = self.method.backbone.longest_source
        sources = z_t[:, :longest]
        start = (sources == self.method.vocabulary.eos_id).int().argmax(1)
        place = torch.arange(sources.shape[1], device=z_t.device)
        return sources.masked_fill(place > start[:, None], -1)

    def _encode(self, new: Int[Tensor, "new source"]) -> None:
        known = self.known
        with self.method.arithmetic():
            encoded = self.method.backbone.encode(new.clamp(min=0)).source
        if known.tokens is None or known.encoded is None:
            known.tokens, known.encoded = new, encoded
            return
        known.tokens = torch.cat([known.tokens, new])
        parts = zip(known.encoded, encoded, strict=True)
        known.encoded = Source(*(torch.cat(both) for both in parts))

    def _features(self, z_t: Tokens, *others: Tensor) -> Tensor:
        count = len(Source._fields)
        state = SourceState(Source(*others[:count]), self.columns)
        return self.method.backbone.features(z_t, *others[count:], state=state)

    def _log_x_theta(
        self, rows: Tensor, columns: Tensor, z_t: Tokens, *others: Tensor
    ) -> LogProbabilities:
        return self.method.log_mean(self._features(z_t, *others)[rows, columns])


def _matches(tokens: Tensor, known: Tensor | None) -> Tensor:
    """True where a row's source equals a known one, [rows, known]."""
    if known is None:
        return torch.zeros(len(tokens), 0, dtype=torch.bool, device=tokens.device)
    return (tokens[:, None] == known).all(-1)
