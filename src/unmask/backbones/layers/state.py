"""States of causal networks: what they keep of the tokens that they have read."""

from abc import ABC, abstractmethod
from collections.abc import Hashable

import torch
from jaxtyping import Int
from torch import Tensor


class State(ABC):
    """What a network keeps of the first `length` tokens of some rows, so that it reads each of them once."""

    def __init__(self) -> None:
        self.length = 0

    def advance(self, tokens: int) -> None:
        """Counts tokens that every layer has read."""
        self.length += tokens

    @abstractmethod
    def crop(self, length: int) -> int:
        """Forgets all but the first `length` tokens, or even more; returns the number of tokens kept."""


class RecurrentState(State):
    """The last state of each layer of a recurrence; the way back leads to the start alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: dict[Hashable, Tensor] = {}

    def crop(self, length: int) -> int:
        if length < self.length:
            self.layers.clear()
            self.length = 0
        return self.length


class KVState(State):
    """Rotated keys and values of each layer, for sequences of up to `capacity` tokens."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._layers: list[tuple[Tensor, Tensor]] = []

    def reach(self, new: int) -> int:
        """The number of keys that `new` tokens can see, their own included."""
        return self.length + new

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds [rows, heads, new, width] keys and values to a layer; returns all that it holds."""
        end = self.length + k.shape[2]
        held = self.held(layer, k)
        for all_of_them, new in zip(held, (k, v), strict=True):
            all_of_them[:, :, self.length : end] = new
        return held[0][:, :, :end], held[1][:, :, :end]

    def held(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """The memory of a layer, zeros at first: what is masked must still be a number."""
        if layer == len(self._layers):
            shape = (*like.shape[:2], self.capacity, like.shape[3])
            with torch.inference_mode(False):  # so that it can be written in any mode
                k = torch.zeros(shape, dtype=like.dtype, device=like.device)
                self._layers.append((k, torch.zeros_like(k)))
        return self._layers[layer]

    def crop(self, length: int) -> int:
        self.length = min(self.length, length)
        return self.length


class GraphKVState(KVState):
    """A cache that gets one token, at a position that only the device knows, and shows `span` keys."""

    def __init__(self, cache: KVState, position: Int[Tensor, "1"], span: int) -> None:
        super().__init__(cache.capacity)
        self._layers = cache._layers
        self._position, self._span = position, span

    def reach(self, new: int) -> int:
        return self._span

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        held = self.held(layer, k)
        for all_of_them, new in zip(held, (k, v), strict=True):
            all_of_them.index_copy_(2, self._position, new)
        return held[0][:, :, : self._span], held[1][:, :, : self._span]
