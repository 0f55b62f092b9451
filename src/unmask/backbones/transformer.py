"""The parts that both transformers are made of: rotary positions, attention, the residual block."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.base import Features, Rule, attention_mask
from unmask.backbones.cache import KVCache
from unmask.errors import UnmaskError, unknown

# width, depth, heads as the authors name them
SIZES = {"tiny": (512, 8, 8), "small": (768, 12, 12), "medium": (1024, 24, 16)}


@dataclass(frozen=True)
class TransformerConfig:
    """Width, depth and heads: those of a size (tiny, small, medium), or given; small's where neither."""

    size: str = ""
    width: int = 0
    depth: int = 0
    heads: int = 0
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.size and self.size not in SIZES:
            raise unknown("size", self.size, SIZES)
        standard = SIZES[self.size or "small"]
        for name, value in zip(("width", "depth", "heads"), standard, strict=True):
            given = getattr(self, name)
            if given < 0:
                raise UnmaskError(f"{name} must be positive, not {given}")
            if self.size and given not in (0, value):
                raise UnmaskError(
                    f"size {self.size} has {name} {value}, not {given}: set {name} 0 or no size"
                )
            object.__setattr__(self, name, given or value)
        if self.width % (2 * self.heads):
            raise UnmaskError(f"width {self.width} does not split into {self.heads} even heads")
        if not 0 <= self.dropout < 1:
            raise UnmaskError(f"dropout must lie in [0, 1), not {self.dropout}")


class Rotation(NamedTuple):
    """cos and sin of every position's angles, [length, head width / 2]."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, positions: Int[Tensor, "length"], width: int) -> "Rotation":
        """Rotary angles, base 10,000."""
        exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
        angles = positions.float()[:, None] * 10_000.0**-exponents
        return cls(angles.cos(), angles.sin())

    def __call__(self, x: Float[Tensor, "rows heads length width"]) -> Tensor:
        """Rotates the two halves of each head against each other."""
        a, b = x.chunk(2, -1)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attended(NamedTuple):
    """What attention needs beside its input: the same for every layer."""

    rotation: Rotation
    mask: Bool[Tensor, "#rows 1 #queries keys"] | None
    causal: bool
    cache: KVCache | None


def attended(
    length: int,
    head_width: int,
    device: torch.device,
    valid: Tensor | None,
    positions: Tensor | None,
    rule: Rule | None,
    cache: KVCache | None,
    causal: bool = False,
) -> Attended:
    """Works out positions and visibility once for all layers."""
    start = cache.length if cache else 0
    if positions is None:
        positions = torch.arange(start, start + length, device=device)
    plain = causal and rule is None and valid is None and start == 0
    if causal and rule is None and not plain:
        rule = sees_the_past
    keys = torch.arange(start + length, device=device) if cache else positions
    mask = None if plain else attention_mask(positions, keys, valid, rule)
    return Attended(Rotation.at(positions, head_width), mask, plain, cache)


def sees_the_past(query: Tensor, key: Tensor) -> Tensor:
    """The causal rule."""
    return key <= query


class Attention(nn.Module):
    """Multi-head attention with rotary positions, by torch's fused kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Features, layer: int, seen: Attended) -> Features:
        rows, length, width = x.shape
        qkv = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q, k = seen.rotation(q), seen.rotation(k)
        if seen.cache is not None:
            k, v = seen.cache.append(layer, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen.mask, is_causal=seen.causal)
        return self.out(y.transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    """Attention and MLP, each normalised before and added back; adaLN where there is a condition."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        condition_width: int = 0,
        gate: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)
        self.modulation = zero_linear(condition_width, 6 * width) if condition_width else None
        if self.modulation is not None:
            for bias in self.modulation.bias.detach().chunk(6)[2::3]:
                bias.fill_(gate)

    def forward(
        self, x: Features, layer: int, seen: Attended, c: Float[Tensor, "#rows condition"] | None
    ) -> Features:
        if self.modulation is None:
            x = x + self.dropout(self.attention(self.attention_norm(x), layer, seen))
            return x + self.dropout(self.mlp(self.mlp_norm(x)))
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.modulation(c)[:, None].chunk(
            6, -1
        )
        h = modulate(self.attention_norm(x), shift, scale)
        x = x + gate * self.dropout(self.attention(h, layer, seen))
        h = modulate(self.mlp_norm(x), mlp_shift, mlp_scale)
        return x + mlp_gate * self.dropout(self.mlp(h))


def modulate(x: Features, shift: Tensor, scale: Tensor) -> Features:
    """adaLN's affine map, one a row."""
    return x * (1 + scale) + shift


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that starts at zero."""
    linear = nn.Linear(inputs, outputs)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def embedding(vocabulary: int, width: int) -> nn.Embedding:
    """Token embeddings with the authors' initial scale."""
    table = nn.Embedding(vocabulary, width)
    nn.init.kaiming_uniform_(table.weight, a=5**0.5)
    return table
