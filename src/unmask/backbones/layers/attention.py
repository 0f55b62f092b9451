"""Attention rules and masks, computed once for all layers."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

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

    def by_token(self, x: Float[Tensor, "#rows values"]) -> Tensor:
        """Values of each row, broadcast over its tokens."""
        return x[:, None]


# (query positions, key positions) -> True where the query attends to the key
AttentionRule = Callable[[Tensor, Tensor], Tensor]


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
    if positions is None:
        positions = torch.arange(start, start + length, device=device)
    # a plain causal mask needs no tensor: the kernel has the option `is_causal`
    plain_causal = causal and rule is None and valid is None and reach == length
    if causal and rule is None and not plain_causal:
        rule = causal_rule
    keys = torch.arange(reach, device=device) if cache else positions
    mask = None if plain_causal else attention_mask(positions, keys, valid, rule)
    if from_the_start:
        return AttentionInputs(rotary.first(length, device), mask, plain_causal, cache)
    return AttentionInputs(rotary.at(positions, reach), mask, plain_causal, cache)


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


def causal_rule(query: Tensor, key: Tensor) -> Tensor:
    """The causal rule: True at keys up to the query's position."""
    return key <= query


Features = Float[Tensor, "rows length width"]


def attention_mask(
    queries: Int[Tensor, "queries"],
    keys: Int[Tensor, "keys"],
    valid: Bool[Tensor, "rows keys"] | None,
    rule: AttentionRule | None,
) -> Bool[Tensor, "#rows 1 #queries keys"] | None:
    """Attention mask: the rule, and False at padding; None if all queries attend to all keys."""
    allowed = None if rule is None else rule(queries[:, None], keys[None, :])[None, None]
    if valid is None:
        return allowed
    real = valid[:, None, None, :]
    return real if allowed is None else torch.logical_and(real, allowed)
