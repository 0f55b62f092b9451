"""Triton kernels that draw tokens by inversion of the cumulative distribution."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float64, Int
from torch import Tensor

BLOCK = 1024


def draw(
    log_probabilities: Float[Tensor, "tokens vocabulary"], uniforms: Float64[Tensor, "tokens"]
) -> Int[Tensor, "tokens"]:
    """One token per distribution, by inversion in float64: first the block, then the token."""
    rows, size = log_probabilities.shape
    blocks = triton.cdiv(size, BLOCK)
    masses = uniforms.new_empty(rows, blocks)
    tokens = torch.empty(rows, dtype=torch.long, device=log_probabilities.device)
    if rows:
        x = log_probabilities.contiguous()
        _masses[(rows, blocks)](x, masses, size, blocks, BLOCK=BLOCK)
        wide = triton.next_power_of_2(blocks)
        _choose[(rows,)](
            x, masses, uniforms.contiguous(), tokens, size, blocks, BLOCK=BLOCK, WIDE=wide
        )
    return tokens


@triton.jit
def _masses(x, masses, size, blocks, BLOCK: tl.constexpr):
    """Writes the probability of each block of a distribution."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    entries = tl.load(x + row * size + columns, columns < size, float("-inf")).to(tl.float64)
    tl.store(masses + row * blocks + block, tl.sum(tl.exp(entries), 0))


@triton.jit
def _choose(x, masses, uniforms, tokens, size, blocks, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Finds the first block, then its first token,
    whose cumulative probability exceeds the target.
    """
    row = tl.program_id(0).to(tl.int64)
    blocks_before = tl.arange(0, WIDE)
    mass = tl.load(masses + row * blocks + blocks_before, blocks_before < blocks, 0.0)
    cumulative = tl.cumsum(mass, 0)
    target = tl.load(uniforms + row) * tl.max(cumulative, 0)
    block = _first_beyond(cumulative, mass, target, blocks_before, WIDE)
    before = tl.max(tl.where(blocks_before < block, cumulative, 0.0), 0)
    inside = tl.arange(0, BLOCK)
    columns = block * BLOCK + inside
    entries = tl.load(x + row * size + columns, columns < size, float("-inf")).to(tl.float64)
    mass = tl.exp(entries)
    token = _first_beyond(tl.cumsum(mass, 0), mass, target - before, inside, BLOCK)
    tl.store(tokens + row, (block * BLOCK + token).to(tl.int64))


@triton.jit
def _first_beyond(cumulative, mass, target, numbers, COUNT: tl.constexpr):
    """The first entry of positive probability whose cumulative sum exceeds the target.

    If rounding leaves no such entry, the last one of positive probability.
    """
    first = tl.min(tl.where((cumulative > target) & (mass > 0), numbers, COUNT), 0)
    last = tl.max(tl.where(mass > 0, numbers, 0), 0)
    return tl.minimum(first, last)
