"""The autoregressive baseline: exact likelihood, left to right, with a KV cache."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.backbones.cache import KVCache
from unmask.diffusion.parameterization import zero_masking_bias
from unmask.diffusion.time_sampling import Noise, TimeSampler
from unmask.methods.base import (
    METHODS,
    At,
    Denoiser,
    LogProbabilities,
    Losses,
    Method,
    Tokens,
    Valid,
    padding,
)
from unmask.methods.diffusion import cross_entropy
from unmask.methods.head import head_loss
from unmask.randomness import RowStream


@METHODS.register("autoregressive")
class Autoregressive(Method):
    """Left to right, one token at a time; the likelihood is exact."""

    certificate = "exact"
    order = "left_to_right"

    @dataclass(frozen=True)
    class Config:
        pass

    def noise(
        self, stream: RowStream, valid: Valid, times: TimeSampler | None = None
    ) -> Noise | None:
        return None

    def nll(self, x: Tokens, valid: Valid, noise: Noise | None, whole: bool = False) -> Losses:
        """-log p(x_i | x_<i); the first token is predicted from MASK, which stands before every row."""
        text = x.masked_fill(~valid, self.vocabulary.mask_id)  # padding before a text is no context
        h = self.backbone.features(self._shifted(text), valid=padding(valid))
        at = valid.nonzero(as_tuple=True)
        ones = torch.ones(len(at[0]), device=x.device)
        total, losses = head_loss(
            h[at], self.backbone.head.weight, self._bias(), cross_entropy, x[at], ones
        )
        return Losses(total, {"nll": torch.zeros(x.shape, device=x.device).index_put(at, losses)})

    def denoiser(self) -> Denoiser:
        return _CachedDenoiser(self)

    def next_log_probabilities(self, h: Float[Tensor, "rows width"]) -> LogProbabilities:
        """Scores of the next token at given features."""
        logits = torch.nn.functional.linear(h, self.backbone.head.weight, self._bias())
        return torch.log_softmax(logits.float(), -1)

    def _shifted(self, x: Tokens) -> Tokens:
        """What stands before each token; MASK is never part of a text, so it marks the start."""
        return torch.cat([x.new_full((len(x), 1), self.vocabulary.mask_id), x[:, :-1]], 1)

    def _bias(self) -> Tensor:
        return zero_masking_bias(self.backbone.head.bias, self.vocabulary.mask_id)


class _CachedDenoiser:
    """log p(x_i | x_<i) at one column, computing only what is new since the last call."""

    def __init__(self, method: Autoregressive) -> None:
        self._method = method
        self._cache: KVCache | None = None
        self._read: Tokens | None = None

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        rows, columns = at
        column = int(columns[0])
        inputs = self._method._shifted(z_t)[:, : column + 1]
        start = self._held(inputs, z_t.shape[1])
        h = self._method.backbone.features(inputs[:, start:], cache=self._cache)
        self._read = inputs
        return self._method.next_log_probabilities(h[rows, columns - start])

    def _held(self, inputs: Tokens, capacity: int) -> int:
        """How many of the inputs the cache holds already; the last one is always computed."""
        if self._cache is None or self._read is None or len(self._read) != len(inputs):
            self._cache, self._read = KVCache(capacity), inputs[:, :0]
        shared = min(self._read.shape[1], inputs.shape[1] - 1)
        same = (self._read[:, :shared] == inputs[:, :shared]).all(0).long().cumprod(0).sum()
        self._cache.crop(int(same))
        return self._cache.length
