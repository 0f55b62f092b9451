"""Triton kernels of the gated sum (Σ_i y_i + D_i x_i) silu(z) at the end of a Mamba block.

A program computes a chunk of the positions of a row for BLOCK channels, as in
`unmask.extensions.dna.kernels.convolution`. The second direction is stored from the last position
to the first.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from unmask.extensions.dna.kernels.convolution import BLOCK, place

STEPS = 64  # positions of a program
TILE = 8  # positions that a program computes at a time

Rows = Float[Tensor, "rows length channels"]


def forward(z: Rows, parts: Sequence[Tensor]) -> Rows:
    """The gated sum, in the precision of `z`; `parts` are y, x and D of each direction."""
    out = z.new_empty(z.shape)
    if z.numel():
        first, grid, sizes = _launch(z)
        forth, back = _directions(parts)
        _gate[grid](first, *forth, *back, out, **sizes, BOTH=len(parts) > 3)
    return out


def backward(d_out: Rows, z: Rows, parts: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of z, and of y, x and D of each direction."""
    d_z, (rows, length, channels) = z.new_empty(z.shape), z.shape
    grads = [part.new_empty(part.shape) for part in parts]
    sums = z.new_empty(
        rows * triton.cdiv(length, STEPS), len(parts) // 3, channels, dtype=torch.float32
    )
    if z.numel():
        first, grid, sizes = _launch(z)
        forth, back = _directions(parts)
        d_forth, d_back = _directions(grads)
        _gradients[grid](
            d_out.contiguous(), first, *forth, *back, d_z, *d_forth[:2], *d_back[:2], sums,
            **sizes, BOTH=len(parts) > 3,
        )  # fmt: skip
    for D, total in zip(grads[2::3], sums.sum(0), strict=True):
        D.copy_(total)
    return [d_z, *grads]


def _directions(parts: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """y, x and D of the first direction and of the last."""
    parts = [part.contiguous() for part in parts]
    return parts[:3], parts[-3:]


def _launch(z: Rows) -> tuple[Tensor, tuple[int], dict[str, Any]]:
    """The memory of the gates, the grid, and the sizes that the kernels share."""
    z = z if z.stride(2) == 1 else z.contiguous()
    rows, length, channels = z.shape
    offset = z.storage_offset()
    # a common divisor of all offsets, for loads of several channels
    unit = math.gcd(channels, z.stride(0), z.stride(1), offset, 8)
    sizes = {
        "chunks": triton.cdiv(length, STEPS),
        "length": length,
        "units": channels // unit,
        "offset_units": offset // unit,
        "row_units": z.stride(0) // unit,
        "step_units": z.stride(1) // unit,
    }
    shape = {"UNIT": unit, "BLOCK": BLOCK, "STEPS": STEPS, "TILE": TILE, "num_warps": 4}
    # from the start of the memory, which is aligned: half a projection may start anywhere
    memory = z.as_strided((1,), (1,), 0)
    return memory, (rows * sizes["chunks"] * triton.cdiv(channels, BLOCK),), sizes | shape


@triton.jit(
    do_not_specialize=["chunks", "length", "units", "offset_units", "row_units", "step_units"]
)
def _gate(
    z, y, x, D, y_back, x_back, D_back, out,
    chunks, length, units, offset_units, row_units, step_units,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr, TILE: tl.constexpr,
    BOTH: tl.constexpr,
):  # fmt: skip
    """Writes the gated sums of a chunk."""
    channels = units * UNIT
    _part, row, chunk, d, real = place(chunks, channels, BLOCK)
    z += row * (row_units * UNIT) + offset_units * UNIT
    first = row * length * channels
    skip = _skips(D, d, real)
    skip_back = _skips(D_back, d, real)
    start = chunk * STEPS
    for t in range(start, tl.minimum(start + STEPS, length), TILE):
        positions = t + tl.arange(0, TILE)[:, None]
        there = (positions < length) & real[None, :]
        at = first + positions * channels + d[None, :]
        gate = _values(z + positions * (step_units * UNIT) + d[None, :], there)
        total = _values(y + at, there) + skip * _values(x + at, there)
        if BOTH:
            at_back = first + (length - 1 - positions) * channels + d[None, :]
            total += _values(y_back + at_back, there)
            total += skip_back * _values(x_back + at_back, there)
        tl.store(out + at, total * gate * tl.sigmoid(gate), there)


@triton.jit(
    do_not_specialize=["chunks", "length", "units", "offset_units", "row_units", "step_units"]
)
def _gradients(
    d_out, z, y, x, D, y_back, x_back, D_back, d_z, d_y, d_x, d_y_back, d_x_back, sums,
    chunks, length, units, offset_units, row_units, step_units,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr, TILE: tl.constexpr,
    BOTH: tl.constexpr,
):  # fmt: skip
    """Writes the gradients at a chunk's positions, and sums those of D over them."""
    channels = units * UNIT
    part, row, chunk, d, real = place(chunks, channels, BLOCK)
    z += row * (row_units * UNIT) + offset_units * UNIT
    first = row * length * channels
    skip = _skips(D, d, real)
    skip_back = _skips(D_back, d, real)
    d_skip = tl.zeros([TILE, BLOCK], tl.float32)
    d_skip_back = tl.zeros([TILE, BLOCK], tl.float32)
    start = chunk * STEPS
    for t in range(start, tl.minimum(start + STEPS, length), TILE):
        positions = t + tl.arange(0, TILE)[:, None]
        there = (positions < length) & real[None, :]
        at = first + positions * channels + d[None, :]
        gate = _values(z + positions * (step_units * UNIT) + d[None, :], there)
        slope = _values(d_out + at, there)
        inputs = _values(x + at, there)
        total = _values(y + at, there) + skip * inputs
        share = tl.sigmoid(gate)
        d_total = slope * gate * share
        tl.store(d_y + at, d_total, there)
        tl.store(d_x + at, d_total * skip, there)
        d_skip += d_total * inputs
        if BOTH:
            at_back = first + (length - 1 - positions) * channels + d[None, :]
            inputs = _values(x_back + at_back, there)
            total += _values(y_back + at_back, there) + skip_back * inputs
            tl.store(d_y_back + at_back, d_total, there)
            tl.store(d_x_back + at_back, d_total * skip_back, there)
            d_skip_back += d_total * inputs
        tl.store(d_z + at, slope * total * share * (1 + gate * (1 - share)), there)
    own = sums + part * (2 if BOTH else 1) * channels
    tl.store(own + d, tl.sum(d_skip, 0), real)
    if BOTH:
        tl.store(own + channels + d, tl.sum(d_skip_back, 0), real)


@triton.jit
def _values(x, there):
    return tl.load(x, there, 0.0).to(tl.float32)


@triton.jit
def _skips(D, d, real):
    """D of each channel: [1, channels]."""
    return tl.load(D + d, real, 0.0).to(tl.float32)[None, :]
