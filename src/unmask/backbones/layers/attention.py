"""Attention rules and masks, computed once for all layers."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from unmask.backbones.layers.attention_rules import (
    AttentionRule,
    attend_by_blocks,
    attention_mask,
    block_mask,
    causal_rule,
    full_rule,
    takes_block_mask,
)
from unmask.backbones.layers.ops import attend
from unmask.backbones.layers.rotary import Rotary, Rotation
from unmask.backbones.layers.state import KVState, Source, State
from unmask.shapes import Inputs


class RelativePositions(NamedTuple):
    """Relative positions of disentangled attention (DeBERTa)."""

    bucket: Tensor  # row of `table` for each query and key, [queries, keys]
    table: Tensor  # embeddings of relative positions, [positions, width]


class CrossAttentionInputs(NamedTuple):
    """Encoded sources that a decoder attends to, and the rotation of its queries."""

    source: Source
    rotation: Rotation


class AttentionInputs(NamedTuple):
    """Arguments of attention besides queries, keys and values; the same for all layers."""

    rotation: Rotation
    # False where attention is not allowed, or a number that is added to the scores
    mask: Shaped[Tensor, "#rows #heads #queries keys"] | None
    causal: bool
    cache: KVState | None
    relative: RelativePositions | None = None
    cross: CrossAttentionInputs | None = None  # of a decoder with an encoder
    by_blocks: BlockMask | None = None  # carries the rule in place of `mask`

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of rotated queries and keys, by the carrier of the rule.

        Args:
            q: Queries, [rows, heads, queries, head width].
            k: Keys, [rows, heads, keys, head width], with those of the cache.
            v: Values of the keys.

        Returns:
            The values of each query.
        """
        if self.by_blocks is not None:
            return attend_by_blocks(q, k, v, self.by_blocks)
        return attend(q, k, v, self.mask, self.causal)

    def by_token(self, x: Float[Tensor, "#rows values"]) -> Tensor:
        """Values of each row, broadcast over its tokens."""
        return x[:, None]


def attention_inputs(
    length: int,
    rotary: Rotary,
    device: torch.device,
    valid: Tensor | None,
    positions: Tensor | None,
    rule: AttentionRule | None,
    state: State | None,
    causal: bool = False,
) -> AttentionInputs:
    """Rotation and mask of one forward pass, for all layers."""
    cache = state
    assert cache is None or isinstance(cache, KVState), "attention needs a KVState"
    start = cache.length if cache else 0
    reach = cache.reach(length) if cache else length
    from_the_start = positions is None and not start
    places = torch.arange(start, start + length, device=device)
    if positions is None:
        positions = places
    elif cache:
        places = positions  # a CUDA graph reads the place of its token from a tensor
    # a plain causal mask needs no tensor: the kernel has the option `is_causal`
    plain_causal = causal and rule is None and valid is None and reach == length
    if causal and rule is None and not plain_causal:
        rule = causal_rule
    if rule is full_rule:
        rule = None
    mask = by_blocks = None
    if rule is not None and not cache and valid is None and takes_block_mask(rule, device):
        by_blocks = block_mask(rule, length, device)
    elif not plain_causal and (rule is not None or valid is not None):
        keys = torch.arange(reach, device=device) if cache else places
        mask = attention_mask(places, keys, valid, rule)
    rotation = rotary.first(length, device) if from_the_start else rotary.at(positions, reach)
    return AttentionInputs(rotation, mask, plain_causal, cache, by_blocks=by_blocks)


class Call(NamedTuple):
    """Arguments of one call of a network, which `Backbone.features` describes.

    A packed batch holds several calls, without `valid` and `rule`.
    """

    inputs: Inputs
    condition: Float[Tensor, "rows"] | None = None
    positions: Int[Tensor, "length"] | None = None
    state: State | None = None
    at: Int[Tensor, "tokens"] | None = None
    valid: Bool[Tensor, "rows length"] | None = None
    rule: AttentionRule | None = None

    def attention(self, rotary: Rotary, causal: bool = False) -> AttentionInputs:
        """Rotation, mask and cache of attention."""
        length, device = self.inputs.shape[1], self.inputs.device
        return attention_inputs(
            length, rotary, device, self.valid, self.positions, self.rule, self.state, causal
        )


Features = Float[Tensor, "rows length width"]
