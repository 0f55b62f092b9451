"""States of networks: a KV cache, a recurrent state, the tokens themselves, and encoded sources."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class State(ABC):
    """A network's state after the first `length` tokens of some rows.

    With a state, a call computes new tokens only.
    """

    def __init__(self) -> None:
        self.length = 0

    def advance(self, tokens: int) -> None:
        """Increases the length. The caller does this after all layers have stored the tokens."""
        self.length += tokens

    @abstractmethod
    def crop(self, length: int) -> int:
        """Shortens the state to at most `length` tokens; returns its new length."""


class Source(NamedTuple):
    """Encoded sources of the rows of a batch."""

    # keys and values of cross-attention in each layer of the decoder
    kv: Float[Tensor, "rows layers 2 heads source head_width"]
    seen: Bool[Tensor, "rows source"]  # True at the tokens of the source
    start: Int[Tensor, "rows"]  # column of the source's EOS, with which the decoder starts
    lengths: Float[
        Tensor, "rows lengths"
    ]  # logits of the target's length; 0 columns without a head

    def rows(self, index: Int[Tensor, "chosen"]) -> "Source":
        """The sources of some rows."""
        return Source(*(part[index] for part in self))


class SourceState(State):
    """Encoded sources for a bidirectional decoder,
    which computes all tokens of the targets again.
    """

    def __init__(self, source: Source, columns: int | None = None) -> None:
        super().__init__()
        self.source = source
        self.columns = columns  # most tokens of a target in the batch; None: those of the network

    def crop(self, length: int) -> int:
        return self.length


class RecurrentState(State):
    """The last state of each recurrent layer. A crop resets it to the start of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: dict[Hashable, Tensor] = {}

    def crop(self, length: int) -> int:
        if length < self.length:
            self.layers.clear()
            self.length = 0
        return self.length


class TokenState(State):
    """The tokens of the text, for a network that computes all of them in each call."""

    def __init__(self) -> None:
        super().__init__()
        self._tokens: Tensor | None = None

    def append(self, tokens: Tensor) -> Tensor:
        """Adds the next tokens.

        Args:
            tokens: Token ids [rows, new].

        Returns:
            All tokens up to these.
        """
        text = tokens if self._tokens is None else torch.cat([self._tokens, tokens], 1)
        self._tokens = text
        self.advance(tokens.shape[1])
        return text

    def crop(self, length: int) -> int:
        if length < self.length and self._tokens is not None:
            self._tokens = self._tokens[:, :length]
            self.length = length
        return self.length


class KVState(State):
    """KV cache: rotated keys and values of each layer, for up to `capacity` tokens."""

    source: Source | None = None  # encoded sources, if the network has an encoder

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._layers: list[tuple[Tensor, Tensor]] = []

    def reach(self, new: int) -> int:
        """The number of keys that the next tokens attend to.

        Args:
            new: Number of the next tokens.

        Returns:
            The number of keys, with those of the next tokens.
        """
        return self.length + new

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds keys and values of the next tokens to a layer.

        Args:
            layer: Number of the layer.
            k: Keys [rows, heads, new, width].
            v: Values of the same shape.

        Returns:
            Keys and values of all tokens up to these.
        """
        end = self.length + k.shape[2]
        held = self.held(layer, k)
        for buffer, new in zip(held, (k, v), strict=True):
            buffer[:, :, self.length : end] = new
        return held[0][:, :, :end], held[1][:, :, :end]

    def held(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """The buffers of a layer. They start at zero, since masked keys must be finite.

        Args:
            layer: Number of the layer.
            like: Keys of some tokens, for shape, precision and device.

        Returns:
            Buffers of keys and values, [rows, heads, capacity, width].
        """
        if layer == len(self._layers):
            shape = (*like.shape[:2], self.capacity, like.shape[3])
            with torch.inference_mode(False):  # otherwise only inference mode could write them
                k = torch.zeros(shape, dtype=like.dtype, device=like.device)
                self._layers.append((k, torch.zeros_like(k)))
        return self._layers[layer]

    def crop(self, length: int) -> int:
        self.length = min(self.length, length)
        return self.length

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        """Drops all rows but some.

        Args:
            rows: The rows that stay, in their new order.
        """
        self._layers = [(k[rows], v[rows]) for k, v in self._layers]


class ReadKVState(KVState):
    """A KV cache that a call reads without storing its own tokens.

    Args:
        cache: The cache.
        rows: Rows of the cache that the call reads.
    """

    def __init__(self, cache: KVState, rows: Int[Tensor, "rows"]) -> None:
        super().__init__(cache.capacity)
        self._layers, self.source, self.length = cache._layers, cache.source, cache.length
        self._rows = rows

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if not self.length:
            return k, v
        held = (part[self._rows, :, : self.length] for part in self._layers[layer])
        past_k, past_v = held
        return torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)


class GraphKVState(KVState):
    """A KV cache inside a CUDA graph: appends one token at a position read from a device tensor.

    Attention reads the first `span` keys.
    """

    def __init__(self, cache: KVState, position: Int[Tensor, "1"], span: int) -> None:
        super().__init__(cache.capacity)
        self._layers, self.source = cache._layers, cache.source
        self._position, self._span = position, span

    def reach(self, new: int) -> int:
        return self._span

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        held = self.held(layer, k)
        for buffer, new in zip(held, (k, v), strict=True):
            buffer.index_copy_(2, self._position, new)
        return held[0][:, :, : self._span], held[1][:, :, : self._span]
