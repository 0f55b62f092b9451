"""Triton kernels of the short causal convolution b + Σ_k w_k u_(t-k) of each channel,
with or without silu.

A program computes a chunk of the positions of a row for BLOCK channels, in order. A thread has four
channels, and holds in registers the last inputs that the next positions need. So each input is read
once. Gradients of weights are summed by each program, then by torch,
so that sums have a fixed order.
"""

# tuples of kernels grow in unrolled loops, and Triton compiles no unpacking of tuples
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,var-annotated"

import math
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

MOST = 8  # with more weights a channel, a program has too few registers
BLOCK = 128  # channels of a program of one warp
STEPS = 64  # positions that a program reads
AHEAD = 8  # positions that a program loads before it needs them

Rows = Float[Tensor, "rows length channels"]
Outputs = Float[Tensor, "rows outputs channels"]
Weights = Float[Tensor, "channels width"]
Bias = Float[Tensor, "channels"]


def forward(u: Rows, weight: Weights, bias: Bias, start: int, flipped: bool, silu: bool) -> Outputs:
    """Outputs from the position `start` on, in the precision of `u`."""
    rows, length, channels = u.shape
    y = u.new_empty(rows, length - start, channels)
    if y.numel():
        u, sizes = _launch(u, weight, start, flipped, silu)
        chunks = triton.cdiv(length - start, STEPS)
        grid = (rows * chunks * triton.cdiv(channels, BLOCK),)
        _convolve[grid](u, weight.contiguous(), bias.contiguous(), y, chunks, **sizes)
    return y


def backward(
    u: Rows, weight: Weights, bias: Bias, d_y: Outputs, start: int, flipped: bool, silu: bool
) -> tuple[Rows, Weights, Bias]:
    """Gradients of the inputs, weights and biases."""
    rows, length, channels = u.shape
    width = weight.shape[1]
    d_u = u.new_empty(u.shape)
    # the last positions of a chunk need the gradients of the first outputs of the next one
    chunks = triton.cdiv(length, STEPS - (width - 1))
    sums = u.new_empty(rows * chunks, width + 1, channels, dtype=torch.float32)
    if d_u.numel():
        u, sizes = _launch(u, weight, start, flipped, silu)
        grid = (rows * chunks * triton.cdiv(channels, BLOCK),)
        w, b, slopes = (x.contiguous() for x in (weight, bias, d_y))
        _gradients[grid](u, w, b, slopes, d_u, sums, chunks, **sizes)
    total = sums.sum(0)
    return d_u, total[:width].t().contiguous(), total[width].clone()


def _launch(
    u: Rows, weight: Weights, start: int, flipped: bool, silu: bool
) -> tuple[Rows, dict[str, Any]]:
    """Inputs with contiguous channels, and the sizes that the kernels share."""
    u = u if u.stride(2) == 1 else u.contiguous()
    rows, length, channels = u.shape
    # a common divisor of all offsets, for loads of several channels
    unit = math.gcd(channels, u.stride(0) if rows > 1 else 8, u.stride(1), 8)
    sign = -1 if flipped else 1
    sizes = {
        "length": length,
        "start": start,
        "units": channels // unit,
        "row_units": u.stride(0) // unit,
        "step_units": sign * (u.stride(1) // unit),
        "sign": sign,
    }
    shape = {"WIDTH": weight.shape[1], "UNIT": unit, "BLOCK": BLOCK, "STEPS": STEPS}
    return u, sizes | shape | {"AHEAD": AHEAD, "SILU": silu, "num_warps": 1}


@triton.jit
def place(chunks, channels, BLOCK: tl.constexpr):
    """Part, row and chunk of a program; its channels, and a mask of them."""
    blocks = tl.cdiv(channels, BLOCK)
    part = (tl.program_id(0) // blocks).to(tl.int64)
    d = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    return part, part // chunks, part % chunks, d, d < channels


@triton.jit
def _weights(weight, d, real, WIDTH: tl.constexpr):
    """The weights, that of the current input first."""
    weights = ()
    for k in tl.static_range(WIDTH):
        value = tl.load(weight + d * WIDTH + (WIDTH - 1 - k), real, 0.0)
        weights = weights + (value.to(tl.float32),)
    return weights


@triton.jit
def _before(u, t, step, d, real, WIDTH: tl.constexpr):
    """The WIDTH - 1 inputs before the position t, the latest first.
    There are none before the row.
    """
    inputs = ()
    for k in tl.static_range(1, WIDTH):
        value = tl.load(u + (t - k) * step + d, real & (t >= k), 0.0)
        inputs = inputs + (value.to(tl.float32),)
    return inputs


@triton.jit
def _shifted(new, kept, COUNT: tl.constexpr):
    """A tuple of COUNT entries with a new first one and without its last one."""
    found = (new,)
    for k in tl.static_range(COUNT - 1):
        found = found + (kept[k],)
    return found


@triton.jit(
    do_not_specialize=["chunks", "length", "start", "units", "row_units", "step_units", "sign"]
)
def _convolve(
    u, weight, bias, y, chunks, length, start, units, row_units, step_units, sign,
    WIDTH: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
    AHEAD: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    """Writes the outputs of a chunk."""
    channels, step = units * UNIT, (step_units * UNIT).to(tl.int64)
    _part, row, chunk, d, real = place(chunks, channels, BLOCK)
    last = (length - 1) * ((1 - sign) // 2)  # the first position that is read, if flipped
    u += row * (row_units * UNIT) - last * step
    y += row * (length - start) * channels - start * channels.to(tl.int64)
    weights = _weights(weight, d, real, WIDTH)
    level = tl.load(bias + d, real, 0.0).to(tl.float32)
    first = start + chunk * STEPS
    inputs = _before(u, first, step, d, real, WIDTH)
    for t in range(first, tl.minimum(first + STEPS, length), AHEAD):
        loaded = ()
        for k in tl.static_range(AHEAD):
            value = tl.load(u + (t + k) * step + d, real & (t + k < length), 0.0)
            loaded = loaded + (value,)
        for k in tl.static_range(AHEAD):
            value = loaded[k].to(tl.float32)
            total = level + weights[0] * value
            for j in tl.static_range(1, WIDTH):
                total += weights[j] * inputs[j - 1]
            if WIDTH > 1:
                inputs = _shifted(value, inputs, WIDTH - 1)
            if SILU:
                total *= tl.sigmoid(total)
            tl.store(y + (t + k) * channels + d, total, real & (t + k < length))


@triton.jit(
    do_not_specialize=["chunks", "length", "start", "units", "row_units", "step_units", "sign"]
)
def _gradients(
    u, weight, bias, d_y, d_u, sums, chunks, length, start, units, row_units, step_units, sign,
    WIDTH: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
    AHEAD: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of the inputs of a chunk,
    and sums those of weights over its positions.
    """
    channels, step = units * UNIT, (step_units * UNIT).to(tl.int64)
    part, row, chunk, d, real = place(chunks, channels, BLOCK)
    last = (length - 1) * ((1 - sign) // 2)  # the first position that is read, if flipped
    u += row * (row_units * UNIT) - last * step
    d_u += (row * length + last) * channels
    d_y += row * (length - start) * channels - start * channels.to(tl.int64)
    weights = _weights(weight, d, real, WIDTH)
    level = tl.load(bias + d, real, 0.0).to(tl.float32)
    first = chunk * (STEPS - (WIDTH - 1))
    end = tl.minimum(first + (STEPS - (WIDTH - 1)), length)
    inputs = _before(u, first, step, d, real, WIDTH)
    slopes = ()  # gradients of the last sums before silu
    for _k in tl.static_range(1, WIDTH):
        slopes = slopes + (tl.zeros([BLOCK], tl.float32),)
    d_weights = ()
    for _k in tl.static_range(WIDTH):
        d_weights = d_weights + (tl.zeros([BLOCK], tl.float32),)
    d_bias = tl.zeros([BLOCK], tl.float32)
    for t in range(first, end + (WIDTH - 1), AHEAD):
        loaded = ()
        loaded_slopes = ()
        for k in tl.static_range(AHEAD):
            there = real & (t + k < length)
            loaded = loaded + (tl.load(u + (t + k) * step + d, there, 0.0),)
            there = there & (t + k >= start)
            loaded_slopes = loaded_slopes + (tl.load(d_y + (t + k) * channels + d, there, 0.0),)
        for k in tl.static_range(AHEAD):
            value = loaded[k].to(tl.float32)
            total = level + weights[0] * value
            for j in tl.static_range(1, WIDTH):
                total += weights[j] * inputs[j - 1]
            slope = loaded_slopes[k].to(tl.float32)
            if SILU:
                share = tl.sigmoid(total)
                slope *= share * (1 + total * (1 - share))
            # later positions are those of the next chunk, which sums them
            own = tl.where(t + k < end, slope, 0.0)
            d_bias += own
            added = (d_weights[0] + own * value,)
            for j in tl.static_range(1, WIDTH):
                added = added + (d_weights[j] + own * inputs[j - 1],)
            d_weights = added
            d_value = weights[WIDTH - 1] * slope  # of the input WIDTH - 1 positions before
            if WIDTH > 1:
                for j in tl.static_range(WIDTH - 1):
                    d_value += weights[j] * slopes[WIDTH - 2 - j]
                inputs = _shifted(value, inputs, WIDTH - 1)
                slopes = _shifted(slope, slopes, WIDTH - 1)
            at = t + k - (WIDTH - 1)
            tl.store(d_u + at * (sign * channels) + d, d_value, real & (at >= first) & (at < end))
    own_sums = sums + part * (WIDTH + 1) * channels
    for k in tl.static_range(WIDTH):
        tl.store(own_sums + (WIDTH - 1 - k) * channels + d, d_weights[k], real)
    tl.store(own_sums + WIDTH * channels + d, d_bias, real)
