"""MPNet's encoder (arXiv 2004.09297) and DeBERTa's (arXiv 2111.09543), with relative positions."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.layers.attention import (
    AttentionInputs,
    Call,
    Features,
    RelativePositions,
)
from unmask.backbones.layers.dropout import Keys, dropout
from unmask.backbones.pretrained import Bert, Layer
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary

_FARTHEST = 128  # distance of MPNet's last bucket


@BACKBONES.register("mpnet")
class MPNet(Bert):
    """MPNet's encoder: BERT's with a learned bias for each distance between two tokens."""

    @dataclass(frozen=True)
    class Config(Bert.Config):
        epsilon: float = option(1e-5, gt=0, lt=1)
        buckets: int = option(32, ge=4, le=4096)  # of distances, half of them to each side

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.buckets % 4:
                raise UnmaskError(f"buckets must be a multiple of 4, not {self.buckets}")

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.distances = nn.Embedding(config.buckets, config.heads)
        nn.init.normal_(self.distances.weight, std=0.02)

    def attention(self, call: Call) -> AttentionInputs:
        found, places = super().attention(call), _places(call)
        # the bias of each head, [1, heads, queries, keys]
        bias = self.distances(distance_bucket(places, self.config.buckets)).permute(2, 0, 1)[None]
        if found.mask is not None:
            bias = bias.masked_fill(~found.mask, -torch.inf)
        return found._replace(mask=bias)


def _places(call: Call) -> Int[Tensor, "length"]:
    """The position of each input of a call; 0, 1, … by default."""
    if call.positions is not None:
        return call.positions
    return torch.arange(call.inputs.shape[1], device=call.inputs.device)


def distance_bucket(places: Int[Tensor, "length"], buckets: int) -> Int[Tensor, "length length"]:
    """Bucket of each distance key - query: exact for near keys, logarithmic for far ones (T5)."""
    distance = places[:, None] - places[None, :]  # query - key
    side, near = buckets // 2, buckets // 4
    far = distance.abs()
    scaled = torch.log(far.clamp(min=1).float() / near) / math.log(_FARTHEST / near)
    large = (near + (scaled * (side - near)).long()).clamp(max=side - 1)
    return (distance < 0).long() * side + torch.where(far < near, far, large)


class DisentangledLayer(Layer):
    """Attention by content and by relative position: content-to-content, -to-position and back."""

    def _attention(
        self, h: Features, layer: int, attention: AttentionInputs, keys: Keys | None
    ) -> Features:
        assert attention.relative is not None
        index, table = attention.relative.bucket, attention.relative.table
        q, k, v = (part.transpose(1, 2) for part in self._heads(h))
        # queries and keys of the relative positions, [heads, positions, head width]
        of_query, of_key, _ = (part[0].transpose(0, 1) for part in self._heads(table[None]))
        scale = 1 / math.sqrt(3 * q.shape[-1])
        rows, heads = q.shape[:2]
        at = index.expand(rows, heads, *index.shape)
        to_position = (q @ of_key.transpose(-1, -2)).gather(-1, at)
        # the opposite index: the key at its distance from the query
        from_position = (k @ of_query.transpose(-1, -2)).gather(-1, at.transpose(-1, -2))
        bias = (to_position + from_position.transpose(-1, -2)) * scale
        if attention.mask is not None:
            bias = bias.masked_fill(~attention.mask, -torch.inf)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
        return dropout(self.out(y.transpose(1, 2).flatten(2)), self.dropout, keys, 2 * layer)

    def _heads(self, h: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value of each head."""
        return self.qkv(h).unflatten(-1, (3, self.heads, -1)).unbind(2)


@BACKBONES.register("deberta")
class DeBERTa(Bert):
    """DeBERTa's encoder, versions 2 and 3: attention by content and by relative position.

    Unlike the published network, it applies no dropout to the embeddings of relative positions.
    """

    layer = DisentangledLayer

    @dataclass(frozen=True)
    class Config(Bert.Config):
        epsilon: float = option(1e-7, gt=0, lt=1)
        # of distances to one side; half of them are exact
        buckets: int = option(256, ge=2, le=2**16)

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        del self.positions  # no token has an absolute position
        self.relative = nn.Embedding(2 * config.buckets, config.width)
        self.relative_norm = nn.LayerNorm(config.width, config.epsilon)
        nn.init.normal_(self.relative.weight, std=0.02)

    def table(self, inputs: Inputs, position_ids: Tensor, segments: Tensor | None) -> Features:
        x = self.embedding(inputs)
        return x if self.types is None else x + self._type_embedding(segments)

    def attention(self, call: Call) -> AttentionInputs:
        found, places = super().attention(call), _places(call)
        span = self.config.buckets
        index = log_bucket(places[:, None] - places[None, :], span, self.config.positions) + span
        table = self.relative_norm(self.relative.weight)
        return found._replace(relative=RelativePositions(index.clamp(0, 2 * span - 1), table))


def log_bucket(distance: Tensor, span: int, farthest: int) -> Tensor:
    """Bucket of each distance: itself up to half of `span`, then logarithmic up to `farthest`."""
    middle = span // 2
    far = torch.where(distance.abs() < middle, middle - 1, distance.abs())
    scaled = torch.log(far.float() / middle) / math.log((farthest - 1) / middle) * (middle - 1)
    large = scaled.ceil().long() + middle
    return torch.where(far <= middle, distance, large * distance.sign())
