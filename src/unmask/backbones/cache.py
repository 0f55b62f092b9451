"""Keys and values that a causal network has already computed."""

from torch import Tensor


class KVCache:
    """Rotated keys and values of each layer, for sequences of up to `capacity` tokens."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._layers: list[tuple[Tensor, Tensor]] = []

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds [rows, heads, new, width] keys and values to a layer; returns all that it holds."""
        if layer == len(self._layers):
            shape = (*k.shape[:2], self.capacity, k.shape[3])
            self._layers.append((k.new_empty(shape), v.new_empty(shape)))
        end = self.length + k.shape[2]
        for held, new in zip(self._layers[layer], (k, v), strict=True):
            held[:, :, self.length : end] = new
        return self._layers[layer][0][:, :, :end], self._layers[layer][1][:, :, :end]

    def advance(self, tokens: int) -> None:
        """Counts tokens that every layer has appended."""
        self.length += tokens

    def crop(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        self.length = min(self.length, length)
