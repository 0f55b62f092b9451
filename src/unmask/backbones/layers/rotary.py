"""Rotary positions (RoPE, arXiv 2104.09864), and their scaling for texts beyond the trained length."""

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.runtime.cuda_graphs import doubled

# linear: arXiv 2306.15595, yarn: arXiv 2309.00071, llama3: arXiv 2407.21783; dynamic raises theta
SCALINGS = ("none", "linear", "dynamic", "llama3", "yarn")


class Rotation(NamedTuple):
    """cos and sin of the rotary angles of each position, [length, head width / 2].

    With positions of their own, rows have angles [rows, length, head width / 2].
    """

    cos: Tensor
    sin: Tensor

    def __call__(self, x: Float[Tensor, "rows length heads width"]) -> Tensor:
        """Rotates queries or keys, in float32 or float64; element i pairs with i + width / 2.

        Of wider heads only the first elements are rotated.
        """
        width = 2 * self.cos.shape[-1]
        if width < x.shape[-1]:
            rotated, rest = x.split([width, x.shape[-1] - width], -1)
            return torch.cat([self(rotated), rest], -1)
        a, b = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, -1)
        cos, sin = self.cos[..., None, :], self.sin[..., None, :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


@dataclass(frozen=True)
class Rotary:
    """Rotary angles of the heads of a network; the fields after `theta` describe the scaling."""

    width: int  # of a head
    theta: float = 10_000.0
    scaling: str = "none"
    factor: float = 1.0  # longest scaled text / trained length
    trained: int = 0  # positions of the network before the scaling
    # llama3: a frequency that turns fewer than `slow` times in the trained length is scaled by the
    # factor, one that turns more than `fast` times is not, and between them the share is linear.
    # yarn: the same, linear in the number of the frequency.
    slow: float = 1.0
    fast: float = 32.0
    attention: float = 1.0  # yarn: factor of cos and sin, for queries and for keys

    def at(self, positions: Int[Tensor, "*rows length"], reach: int) -> Rotation:
        """The rotation of some positions.

        Args:
            positions: Positions of tokens.
            reach: Number of keys; `dynamic` depends on it.

        Returns:
            cos and sin of the angles.
        """
        angles = positions.float()[..., None] * self.frequencies(reach, positions.device)
        cos, sin = angles.cos(), angles.sin()
        if self.attention == 1:
            return Rotation(cos, sin)
        return Rotation(self.attention * cos, self.attention * sin)

    def first(self, length: int, device: torch.device) -> Rotation:
        """The rotation of positions 0 … length - 1, from a cached table.

        Args:
            length: Number of positions.
            device: Device of the table.

        Returns:
            cos and sin of the angles.
        """
        if self.scaling == "dynamic" and length > self.trained:
            return self.at(torch.arange(length, device=device), length)
        cos, sin = _table(self, doubled(length), device)
        return Rotation(cos[:length], sin[:length])

    def frequencies(self, reach: int, device: torch.device) -> Float[Tensor, "half"]:
        """The angle between neighbouring positions, for each pair of elements of a head."""
        exponents = torch.arange(0, self.width, 2, device=device, dtype=torch.float32) / self.width
        theta = self.theta
        if self.scaling == "dynamic" and reach > self.trained:
            stretch = self.factor * reach / self.trained - (self.factor - 1)
            theta *= stretch ** (self.width / (self.width - 2))
        plain = theta**-exponents
        if self.scaling in ("none", "dynamic"):
            return plain
        kept = self._unscaled(plain)
        return plain * ((1 - kept) / self.factor + kept)

    def _unscaled(self, plain: Float[Tensor, "half"]) -> Float[Tensor, "half"]:
        """The share of each frequency that stays as it was trained, from 0 to 1."""
        if self.scaling == "linear":
            return torch.zeros_like(plain)
        if self.scaling == "llama3":
            turns = self.trained * plain / (2 * math.pi)
            return ((turns - self.slow) / (self.fast - self.slow)).clamp(0, 1)
        low = max(math.floor(self._number_of(self.fast)), 0)
        high = min(math.ceil(self._number_of(self.slow)), self.width - 1)
        numbers = torch.arange(len(plain), device=plain.device, dtype=torch.float32)
        return 1 - ((numbers - low) / max(high - low, 0.001)).clamp(0, 1)

    def _number_of(self, turns: float) -> float:
        """The number of the frequency that turns so many times in the trained length."""
        period = self.trained / (turns * 2 * math.pi)
        return self.width * math.log(period) / (2 * math.log(self.theta))


@cache  # never freed: CUDA graphs read the tables at their addresses
def _table(rotary: Rotary, length: int, device: torch.device) -> Rotation:
    with torch.inference_mode(False):  # a tensor of inference mode would fail in training
        return rotary.at(torch.arange(length, device=device), rotary.trained)
