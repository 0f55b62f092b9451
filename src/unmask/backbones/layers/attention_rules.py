"""Attention rules, and the forms in which attention gets them.

The causal and the full rule need no tensor, since kernels have an option for them. A dense mask
carries any rule. On CUDA a block mask of FlexAttention carries the rules of blocks, and skips the
keys that no query attends to. All carriers give the same features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

# (query places, key places) -> True where the query attends to the key. The place of a token is its
# index among the tokens of a call and of the state before it.
AttentionRule = Callable[[Tensor, Tensor], Tensor]


def causal_rule(query: Tensor, key: Tensor) -> Tensor:
    """The causal rule: True at keys up to the query's place."""
    return key <= query


def full_rule(query: Tensor, key: Tensor) -> Tensor:
    """The rule of a bidirectional network: True everywhere. A causal network obeys it too."""
    return torch.ones_like(query + key, dtype=torch.bool)


@dataclass(frozen=True)
class BlockRule:
    """Tokens attend to their own block and to earlier ones.

    Example:
        >>> place = torch.arange(4)
        >>> BlockRule(2)(place[:, None], place).int().tolist()
        [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    """

    block: int  # tokens of a block

    def sides(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The number of the block of each place, and True where its token has no noise."""
        return place // self.block, torch.ones_like(place, dtype=torch.bool)

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return _sees(*self.sides(query), *self.sides(key))


@dataclass(frozen=True)
class NoisyCleanRule:
    """The rule of rows [z_t ; x], which hold a text with noise and without (arXiv 2503.09573).

    Tokens of z_t attend to their own block of z_t and to the earlier blocks of x. Tokens of x
    attend to their own block and to the earlier blocks of x, and never to z_t.

    Example:
        >>> place = torch.arange(4)  # two tokens of z_t, then two of x
        >>> NoisyCleanRule(length=2, block=1)(place[:, None], place).int().tolist()
        [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    """

    length: int  # tokens of each half
    block: int

    def sides(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The number of the block of each place, and True where its token has no noise."""
        clean = place >= self.length
        return (place - self.length * clean) // self.block, clean

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return _sees(*self.sides(query), *self.sides(key))


def _sees(query_block: Tensor, query_clean: Tensor, key_block: Tensor, key_clean: Tensor) -> Tensor:
    """True where a token of a block attends to another; x and z_t differ in `clean`."""
    within = ~query_clean & ~key_clean & (key_block == query_block)
    before = ~query_clean & key_clean & (key_block < query_block)
    return within | before | (query_clean & key_clean & (key_block <= query_block))


def attention_mask(
    queries: Int[Tensor, "queries"],
    keys: Int[Tensor, "keys"],
    valid: Bool[Tensor, "rows keys"] | None,
    rule: AttentionRule | None,
) -> Bool[Tensor, "#rows 1 #queries keys"] | None:
    """Dense mask: the rule, and False at padding; None if all queries attend to all keys."""
    allowed = None if rule is None else rule(queries[:, None], keys[None, :])[None, None]
    if valid is None:
        return allowed
    real = valid[:, None, None, :]
    return real if allowed is None else torch.logical_and(real, allowed)


def takes_block_mask(rule: AttentionRule | None, device: torch.device) -> bool:
    """True if FlexAttention carries a rule; a rule that is no value would be compiled in each call."""
    return device.type == "cuda" and isinstance(rule, BlockRule | NoisyCleanRule)


@cache  # compiled code has the mask as a guard, so a rule has one mask
def block_mask(rule: BlockRule | NoisyCleanRule, length: int, device: torch.device) -> BlockMask:
    """The block mask of a rule.

    Args:
        rule: A rule that is equal to another of the same values.
        length: Tokens of a row.
        device: The device of the attention.

    Returns:
        The mask of all rows and heads.
    """
    with torch.inference_mode(False):  # training mode reads the mask too
        # tables in place of numbers: compiled code is then the same for all block sizes
        block, clean = rule.sides(torch.arange(length, device=device))
        return create_block_mask(
            lambda row, head, q, k: _sees(block[q], clean[q], block[k], clean[k]),
            *(None, None, length, length),
            device=str(device),
        )


def attend_by_blocks(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask) -> Tensor:
    """Attention of FlexAttention, compiled on a GPU.

    Args:
        q: Queries, [rows, heads, queries, head width].
        k: Keys, [rows, heads, keys, head width]. With fewer heads than `q`, neighbouring heads of
            queries share keys and values.
        v: Values of the keys.
        mask: A mask of `block_mask`.

    Returns:
        The values of each query.
    """
    q, k = q.to(v.dtype), k.to(v.dtype)  # autocast leaves FlexAttention alone
    plain = not q.is_cuda or torch.compiler.is_compiling()
    attention = flex_attention if plain else _compiled()
    return attention(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=False)
