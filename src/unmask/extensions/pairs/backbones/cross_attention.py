"""Cross-attention of a decoder to an encoded source, and the block that contains it."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.layers.attention import (
    AttentionInputs,
    CrossAttentionInputs,
    Features,
)
from unmask.backbones.layers.dropout import Keys, dropout
from unmask.backbones.layers.ops import EPS, attend
from unmask.backbones.layers.packed_batch import PackedBatch
from unmask.backbones.layers.rotary import Rotation
from unmask.backbones.layers.transformer_block import NORMS, Block, Values

KeysAndValues = Float[Tensor, "rows 2 heads source head_width"]


class CrossAttention(nn.Module):
    """Pre-norm attention from the tokens of a target to those of its source."""

    def __init__(self, width: int, heads: int, norm: str, qk_norm: bool) -> None:
        super().__init__()
        self.heads, self.qk_norm = heads, qk_norm
        self.norm = NORMS[norm](width)
        self.query = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def encode(self, memory: Features, rotation: Rotation) -> KeysAndValues:
        """Keys and values of the encoder's output.

        Args:
            memory: Output of the encoder.
            rotation: Rotation of the positions of the source.

        Returns:
            Rotated keys, and values.
        """
        k, v = self.kv(memory).unflatten(2, (2, self.heads, -1)).unbind(2)
        return torch.stack([rotation(self._normal(k)), v], 2).permute(0, 2, 3, 1, 4)

    def forward(self, x: Features, layer: int, inputs: CrossAttentionInputs) -> Features:
        """Output of all heads.

        Args:
            x: Features of the decoder.
            layer: Index of the block.
            inputs: Encoded sources.

        Returns:
            The features to add to `x`.
        """
        q = self.query(self.norm(x)).unflatten(2, (self.heads, -1))
        q = inputs.rotation(self._normal(q)).transpose(1, 2)
        k, v = inputs.source.kv[:, layer].to(q.dtype).unbind(1)
        mask = inputs.source.seen[:, None, None]
        y = attend(q, k, v, mask)
        return self.out(y.transpose(1, 2).flatten(2))

    def _normal(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], eps=EPS) if self.qk_norm else x


class CrossBlock(Block):
    """A block of a decoder: cross-attention to the source, then self-attention and MLP."""

    def __init__(self, width: int, heads: int, dropout: float, **fields: Any) -> None:
        super().__init__(width, heads, dropout, **fields)
        norm, qk_norm = fields.get("norm", "layer"), fields.get("qk_norm", False)
        self.cross = CrossAttention(width, heads, norm, qk_norm)
        self.matrices = self.matrices | {"cross.query": 1, "cross.kv": 2, "cross.out": 1}
        if fields.get("zero_out"):
            nn.init.zeros_(self.cross.out.weight)

    def _features(
        self,
        x: Features,
        layer: int,
        attention: AttentionInputs | PackedBatch,
        c: Tensor | None,
        keys: Keys | None,
        at: Int[Tensor, "tokens"] | None,
        first: Values | None,
    ) -> tuple[Float[Tensor, "*tokens width"], Values]:
        assert isinstance(attention, AttentionInputs) and attention.cross is not None
        y = self.cross(x, layer, attention.cross)
        # negative: the self-attention and MLP of all blocks have the numbers from 0 on
        x = x + dropout(y, self.dropout, keys, -1 - layer)
        return super()._features(x, layer, attention, c, keys, at, first)
