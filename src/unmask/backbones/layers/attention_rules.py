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

NOISY = 2**30  # added to the numbers of blocks of z_t
# tiles of FlexAttention for heads of at most 64 values: about a fifth quicker than its own on an H200
TILES = {
    "fwd_BLOCK_M": 64,
    "fwd_BLOCK_N": 64,
    "bwd_BLOCK_M1": 64,
    "bwd_BLOCK_N1": 64,
    "bwd_BLOCK_M2": 64,
    "bwd_BLOCK_N2": 64,
    "bwd_num_warps": 4,
    "bwd_num_stages": 3,
}


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

    def queries(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The last block that each place attends to, and its block with noise, of which there is none."""
        number = place // self.block
        return number, torch.full_like(number, -1)

    def keys(self, place: Tensor) -> Tensor:
        """The number of the block of each place."""
        return place // self.block

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return _sees(*self.queries(query), self.keys(key))


@dataclass(frozen=True)
class NoisyCleanRule:
    """The rule of rows [z_t ; x], which hold a text with noise and without (arXiv 2503.09573).

    A row may hold several draws of z_t before x; they do not attend to each other. Tokens of z_t attend to their own block of z_t and to the earlier blocks of x. Tokens of x
    attend to their own block and to the earlier blocks of x, and never to z_t.

    Example:
        >>> place = torch.arange(4)  # two tokens of z_t, then two of x
        >>> NoisyCleanRule(length=2, block=1)(place[:, None], place).int().tolist()
        [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    """

    length: int  # tokens of each part
    block: int
    draws: int = 1  # parts z_t before x, each with noise of its own

    def queries(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The last block of x that each place attends to, and its block of z_t; -1 for none."""
        number, clean, first = self._sides(place)
        return number - 1 + clean.to(number.dtype), torch.where(clean, -1, first + number)

    def keys(self, place: Tensor) -> Tensor:
        """The number of the block of each place; those of each z_t come after all those of x."""
        number, clean, first = self._sides(place)
        return torch.where(clean, number, first + number)

    def _sides(self, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The number of the block of each place in its part, True in x, and the first number of a z_t."""
        part = place // self.length
        number = (place - self.length * part) // self.block
        return number, part == self.draws, NOISY + part * (self.length // self.block + 1)

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return _sees(*self.queries(query), self.keys(key))


def _sees(last: Tensor, own: Tensor, key: Tensor) -> Tensor:
    """True where a query attends to a key: to blocks without noise up to `last`, and to block `own`."""
    return (key <= last) | (key == own)


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
        places = torch.arange(length, device=device, dtype=torch.int32)
        (last, own), key = rule.queries(places), rule.keys(places)
        return create_block_mask(
            lambda row, head, q, k: _sees(last[q], own[q], key[k]),
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
    options = TILES if q.is_cuda and q.shape[-1] <= 64 else None
    shared = q.shape[1] != k.shape[1]
    return attention(q, k, v, block_mask=mask, enable_gqa=shared, kernel_options=options)


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=False)
