"""Cached decoding of causal networks: a step computes one token of each row."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.backbones.layers.state import GraphKVState, KVState
from unmask.errors import UnmaskError
from unmask.methods.method import Method
from unmask.runtime.cuda_graphs import CudaGraphs
from unmask.shapes import LogProbabilities, Tokens

Then = Callable[..., Tensor]  # a hashable function; equal functions share a CUDA graph
SPAN = 128  # attention reads a multiple of this number of keys, so that CUDA graphs are few


class CausalMethod(Method):
    """A method that predicts a token from the tokens before it."""

    lag: int  # the network predicts token i at input position i - lag

    @abstractmethod
    def inputs(self, x: Tokens) -> Tokens:
        """The network's input for some rows."""

    @abstractmethod
    def log_next(self, h: Float[Tensor, "tokens width"]) -> LogProbabilities:
        """log p(x_i | x_<i) from features."""


class CachedDecoder:
    """Cached decoder of a causal network, with buffers at fixed addresses for CUDA graphs."""

    def __init__(self, method: CausalMethod, rows: int, length: int) -> None:
        self.shape_and_edition = rows, length, method.edition
        self._method, self._fixed = method, method.serving.fixed
        self._keys = torch.arange(self._span(length), device=method.device)
        self._state = method.backbone.new_state(rows, len(self._keys))
        self._graphs = CudaGraphs()
        self._source_end = 0  # the last column of the longest source, if the network has an encoder

    def crop(self, length: int) -> None:
        """Crops the state to the tokens that predict the first `length` columns.

        A change within a source empties the state, since the source must be encoded again.
        """
        kept = max(0, length - self._method.lag)
        self._state.crop(kept if kept >= self._source_end else 0)

    def __call__(
        self,
        z: Tokens,
        column: int,
        rows: Int[Tensor, "tokens"],
        then: Then | None = None,
        *more: Tensor,
    ) -> Tensor:
        """log p(x_i | x_<i) of some rows at a column.

        It computes the tokens before the column that are not cached. With `then`, it returns
        then(log p, *more), computed in the same CUDA graph.
        """
        last = column - self._method.lag  # the position that predicts this column
        if last < 0:
            raise UnmaskError(
                "this model cannot generate the first token of a text: give a prompt of at least one token"
            )
        self._state.crop(last)
        start = self._state.length
        with self._method.arithmetic():
            if start == 0 and self._method.backbone.pairs:
                self._encode(z)
            if start == 0 or start < last or not isinstance(self._state, KVState):
                new = self._method.inputs(z[:, : column + 1])[:, start : last + 1]
                h = self._method.backbone.features(new, state=self._state)
                log_next = self._method.log_next(h[rows, -1])
                return log_next if then is None else then(log_next, *more)
            self._state.advance(1)
            position, keys = self._keys[last : last + 1], self._keys[: self._span(last + 1)]
            inputs = [z[:, column - 1 : column], position, keys, rows, *more]
            if not self._fixed:
                return self._one_token(then, *inputs)
            sizes = [len(z), 1, len(keys), len(z), *[len(z)] * len(more)]
            return self._graphs(then, partial(self._one_token, then))(inputs, sizes, len(rows))

    def _encode(self, z: Tokens) -> None:
        """Encodes the sources of the rows, into buffers that the CUDA graphs read."""
        encoded, state = self._method.backbone.encode(self._method.inputs(z)), self._state
        assert encoded is not None and isinstance(state, KVState)
        self._source_end = int(encoded.source.start.max())
        if state.source is None:
            state.source = encoded.source
            return
        for buffer, new in zip(state.source, encoded.source, strict=True):
            buffer.copy_(new)

    def _one_token(
        self,
        then: Then | None,
        tokens: Tokens,
        position: Tensor,
        keys: Tensor,
        rows: Tensor,
        *more: Tensor,
    ) -> Tensor:
        """log p from one more token of each row. `position` is a device tensor,
        since a CUDA graph reads it.
        """
        assert isinstance(self._state, KVState)
        state = GraphKVState(self._state, position, len(keys))
        h = self._method.backbone.features(tokens, positions=position, state=state)
        log_next = self._method.log_next(h[rows, 0])
        return log_next if then is None else then(log_next, *more)

    def _span(self, length: int) -> int:
        """The length, rounded up to a multiple of SPAN for CUDA graphs."""
        return -(-length // SPAN) * SPAN if self._fixed else length
