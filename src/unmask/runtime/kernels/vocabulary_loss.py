"""Triton kernels for logsumexp and gradient of the logits of a loss."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor


def summarise(
    logits: Float[Tensor, "tokens vocabulary"], ids: Int[Tensor, "tokens chosen"]
) -> tuple[Float[Tensor, "tokens"], Float[Tensor, "tokens chosen"]]:
    """logsumexp of each token's logits, and its logits at `ids`, in float32, in one pass."""
    tokens, size = logits.shape
    total = torch.empty(tokens, dtype=torch.float32, device=logits.device)
    chosen = torch.empty(ids.shape, dtype=torch.float32, device=logits.device)
    if tokens:
        block = min(8192, triton.next_power_of_2(size))
        _summarise[(tokens,)](
            logits, ids.contiguous(), total, chosen, size, logits.stride(0),
            CHOSEN=ids.shape[1], BLOCK=block, BLOCKS=triton.cdiv(size, block), num_warps=8,
        )  # fmt: skip
    return total, chosen


def differentiate_(
    logits: Float[Tensor, "tokens vocabulary"],
    ids: Int[Tensor, "tokens chosen"],
    total: Float[Tensor, "tokens"],
    d_total: Float[Tensor, "tokens"],
    d_chosen: Float[Tensor, "tokens chosen"],
    d_bias: Float[Tensor, "vocabulary"] | None,
) -> None:
    """Overwrites the logits with the gradient of the loss; adds its sum over tokens to `d_bias`."""
    tokens, size = logits.shape
    if not tokens:
        return
    rows, columns, tiles = 4, 1024, 32
    grid = (triton.cdiv(size, columns), triton.cdiv(tokens, rows * tiles))
    _differentiate[grid](
        logits, ids.contiguous(), total, d_total.contiguous(), d_chosen.contiguous(),
        total if d_bias is None else d_bias, tokens, size, logits.stride(0),
        CHOSEN=ids.shape[1], ROWS=rows, COLUMNS=columns, TILES=tiles, BIAS=d_bias is not None,
        num_warps=4,
    )  # fmt: skip


@triton.jit
def _summarise(
    logits, ids, total, chosen, size, stride,
    CHOSEN: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    largest = -1e38  # finite, since a difference of infinities is NaN
    mass = tl.zeros([BLOCK], tl.float32)
    for block in range(BLOCKS):
        columns = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(logits + columns, columns < size, float("-inf")).to(tl.float32)
        new_largest = tl.maximum(largest, tl.max(x, 0))
        mass = mass * tl.exp(largest - new_largest) + tl.exp(x - new_largest)
        largest = new_largest
    tl.store(total + row, largest + tl.log(tl.sum(mass, 0)))
    for index in tl.static_range(CHOSEN):
        column = tl.load(ids + row * CHOSEN + index)
        tl.store(chosen + row * CHOSEN + index, tl.load(logits + column).to(tl.float32))


@triton.jit
def _differentiate(
    logits, ids, total, d_total, d_chosen, d_bias, tokens, size, stride,
    CHOSEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * ROWS * TILES
    summed = tl.zeros([COLUMNS], tl.float32)
    for tile in range(TILES):
        rows = first + tile * ROWS + tl.arange(0, ROWS)
        there = rows < tokens
        at = logits + rows[:, None].to(tl.int64) * stride + columns[None, :]
        inside = there[:, None] & (columns < size)[None, :]
        x = tl.load(at, inside, float("-inf")).to(tl.float32)
        level = tl.load(total + rows, there, 0.0)
        d = tl.exp(x - level[:, None]) * tl.load(d_total + rows, there, 0.0)[:, None]
        for index in tl.static_range(CHOSEN):
            column = tl.load(ids + rows * CHOSEN + index, there, -1)
            extra = tl.load(d_chosen + rows * CHOSEN + index, there, 0.0)
            d += tl.where(columns[None, :] == column[:, None], extra[:, None], 0.0)
        tl.store(at, d.to(logits.dtype.element_ty), inside)
        summed += tl.sum(d, 0)
    if BIAS:
        tl.atomic_add(d_bias + columns, summed, columns < size)
