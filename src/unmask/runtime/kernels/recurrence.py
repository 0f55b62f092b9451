"""Triton kernels of the selective scan h_t = exp(Δ_t A) h_(t-1) + Δ_t u_t B_t, y_t = C_t h_t.

The four functions compute the passes that `unmask.backbones.layers.selective_scan` describes. A
program computes one row and a block of channels. The forward kernels keep its states in registers.
The backward kernel computes one state of all positions of a tile at a time, with parallel scans.
"""

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

TILE = 32  # positions whose states the backward kernel holds at a time; with 64 its registers spill
BLOCK = 32  # channels of a program
_LOG2E = tl.constexpr(1 / math.log(2))

Rows = Float[Tensor, "rows length channels"]
Selected = Float[Tensor, "rows length states"]
States = Float32[Tensor, "rows states channels"]
Rates = Float32[Tensor, "states channels"]


def last_state(u: Rows, delta: Rows, A: Rates, B: Selected, tile: int) -> States:
    """The states after the last position, from states of zero."""
    first = A.new_zeros(len(u), *A.shape)
    last = torch.empty_like(first)
    _scan[_grid(u)](
        u, delta, A, B, B, first, first, last, first, u.shape[1], u.shape[2], len(u),
        **_shape(A), OUTPUT=False, num_warps=1,
    )  # fmt: skip
    return last


def scan(
    u: Rows, delta: Rows, A: Rates, B: Selected, C: Selected, first: States, tile: int
) -> tuple[Rows, States, Float32[Tensor, "tiles rows states channels"]]:
    """Outputs, states after the last position, and states before each tile of TILE positions."""
    y = torch.empty(u.shape, dtype=torch.float32, device=u.device)
    first = first.contiguous()
    last, firsts = torch.empty_like(first), first.new_empty(-(-u.shape[1] // TILE), *first.shape)
    _scan[_grid(u)](
        u, delta, A, B, C, first, y, last, firsts, u.shape[1], u.shape[2], len(u),
        **_shape(A), OUTPUT=True, num_warps=1,
    )  # fmt: skip
    return y, last, firsts


def first_gradient(delta: Rows, A: Rates, C: Selected, d_y: Rows, tile: int) -> States:
    """The gradient of the states before the first position, from that of the outputs alone."""
    d_first = A.new_empty(len(delta), *A.shape)
    _first_gradient[_grid(delta)](
        delta, A, C, d_y, d_first, delta.shape[1], delta.shape[2],
        STATES=len(A), WIDE=triton.next_power_of_2(len(A)), BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip
    return d_first


def gradients(
    u: Rows,
    delta: Rows,
    A: Rates,
    B: Selected,
    C: Selected,
    firsts: Float32[Tensor, "tiles rows states channels"],
    d_y: Rows,
    d_last: States,
    tile: int,
) -> tuple[Rows, Rows, Rates, Selected, Selected, States]:
    """Gradients of u, Δ, A, B, C and of the states before the first position."""
    d_u, d_delta = (torch.empty_like(u, dtype=torch.float32) for _ in range(2))
    # each program writes its own part, so that sums have a fixed order
    d_A, d_first = (torch.empty_like(d_last, memory_format=torch.contiguous_format) for _ in "AB")
    d_B, d_C = (A.new_empty(_grid(u)[1], *B.shape) for _ in range(2))
    _gradients[_grid(u)](
        u, delta, A, B, C, firsts, d_y, d_last.contiguous(),
        d_u, d_delta, d_A, d_B, d_C, d_first, u.shape[1], u.shape[2], len(u),
        **_shape(A), num_warps=4,
    )  # fmt: skip
    return d_u, d_delta, d_A.sum(0), d_B.sum(0), d_C.sum(0), d_first


def _grid(x: Tensor) -> tuple[int, int]:
    return len(x), triton.cdiv(x.shape[2], BLOCK)


def _shape(A: Tensor) -> dict[str, int]:
    wide = triton.next_power_of_2(len(A))
    return {"STATES": len(A), "WIDE": wide, "BLOCK": BLOCK, "TILE": TILE}


@triton.jit(do_not_specialize=["length", "rows"])
def _scan(
    u, delta, A, B, C, first, y, last, firsts, length, channels, rows,
    STATES: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    OUTPUT: tl.constexpr,
):  # fmt: skip
    """Steps through the positions of a row; with OUTPUT, writes y and the states before each tile."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, WIDE)
    real, used = d < channels, n < STATES
    at = n[:, None] * channels + d[None, :]
    inside = used[:, None] & real[None, :]
    rate = tl.load(A + at, inside, 0.0) * _LOG2E
    state = tl.load(first + row * STATES * channels + at, inside, 0.0)
    u += row * length * channels + d
    delta += row * length * channels + d
    y += row * length * channels + d
    B += row * length * STATES + n
    C += row * length * STATES + n
    # the next position is loaded one step ahead
    step = tl.load(delta, real, 0.0).to(tl.float32)
    value = tl.load(u, real, 0.0).to(tl.float32)
    b = tl.load(B, used, 0.0).to(tl.float32)
    c = tl.load(C, used, 0.0).to(tl.float32)
    for t in range(length):
        if OUTPUT:  # noqa: SIM102, since the inner condition is read at run time
            if t % TILE == 0:
                tile = (t // TILE) * rows + row
                tl.store(firsts + tile * STATES * channels + at, state, inside)
        more = t + 1 < length
        next_step = tl.load(delta + (t + 1) * channels, real & more, 0.0).to(tl.float32)
        next_value = tl.load(u + (t + 1) * channels, real & more, 0.0).to(tl.float32)
        next_b = tl.load(B + (t + 1) * STATES, used & more, 0.0).to(tl.float32)
        state = tl.exp2(step[None, :] * rate) * state + (step * value)[None, :] * b[:, None]
        if OUTPUT:
            next_c = tl.load(C + (t + 1) * STATES, used & more, 0.0).to(tl.float32)
            tl.store(y + t * channels, tl.sum(state * c[:, None], 0), real)
            c = next_c
        step, value, b = next_step, next_value, next_b
    tl.store(last + row * STATES * channels + at, state, inside)


@triton.jit(do_not_specialize=["length"])
def _first_gradient(
    delta, A, C, d_y, d_first, length, channels,
    STATES: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Steps backwards through the positions of a row."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, WIDE)
    real, used = d < channels, n < STATES
    at = n[:, None] * channels + d[None, :]
    inside = used[:, None] & real[None, :]
    rate = tl.load(A + at, inside, 0.0) * _LOG2E
    delta += row * length * channels + d
    d_y += row * length * channels + d
    C += row * length * STATES + n
    carry = tl.zeros([WIDE, BLOCK], tl.float32)
    for back in range(length):
        t = length - 1 - back
        step = tl.load(delta + t * channels, real, 0.0).to(tl.float32)
        slope = tl.load(d_y + t * channels, real, 0.0).to(tl.float32)
        c = tl.load(C + t * STATES, used, 0.0).to(tl.float32)
        carry = tl.exp2(step[None, :] * rate) * (c[:, None] * slope[None, :] + carry)
    tl.store(d_first + row * STATES * channels + at, carry, inside)


@triton.jit
def _then(a, b, next_a, next_b):
    """Two affine maps x -> a x + b, one after the other."""
    return a * next_a, next_a * b + next_b


@triton.jit(do_not_specialize=["length", "rows"])
def _gradients(
    u, delta, A, B, C, firsts, d_y, d_last, d_u, d_delta, d_A, d_B, d_C, d_first,
    length, channels, rows,
    STATES: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Recomputes the states of each tile from its first states, the last tile first."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, WIDE)
    local = tl.arange(0, TILE)
    at_first, at_last = (local == 0)[:, None], (local == TILE - 1)[:, None]
    real = d < channels
    at = n[:, None] * channels + d[None, :]
    inside = (n < STATES)[:, None] & real[None, :]
    part = tl.program_id(1).to(tl.int64) * rows + row
    # gradient of the states before the later tiles
    carry = tl.load(d_last + row * STATES * channels + at, inside, 0.0)
    d_rates = tl.zeros([WIDE, BLOCK], tl.float32)
    tiles = (length + TILE - 1) // TILE
    for back in range(tiles):
        tile = tiles - 1 - back
        t = tile * TILE + local
        places = row * length * channels + t[:, None] * channels + d[None, :]
        there = (t < length)[:, None] & real[None, :]
        step = tl.load(delta + places, there, 0.0).to(tl.float32)
        later = (t + 1 < length)[:, None] & real[None, :]
        next_step = tl.load(delta + places + channels, later, 0.0).to(tl.float32)
        value = tl.load(u + places, there, 0.0).to(tl.float32)
        slope = tl.load(d_y + places, there, 0.0).to(tl.float32)
        d_input = tl.zeros([TILE, BLOCK], tl.float32)  # of Δ u
        d_step = tl.zeros([TILE, BLOCK], tl.float32)
        for index in range(STATES):
            rate = tl.load(A + index * channels + d, real, 0.0)[None, :]
            weights = row * length * STATES + t * STATES + index
            b = tl.load(B + weights, t < length, 0.0).to(tl.float32)[:, None]
            c = tl.load(C + weights, t < length, 0.0).to(tl.float32)[:, None]
            before = ((tile * rows + row) * STATES + index) * channels + d
            first = tl.load(firsts + before, real, 0.0)[None, :]
            decay = tl.exp2(step * (rate * _LOG2E))
            added = step * value * b
            begun = added + tl.where(at_first, decay * first, 0.0)
            _, state = tl.associative_scan((decay, begun), 0, _then)
            own = n[:, None] == index
            carried = tl.sum(tl.where(own, carry, 0.0), 0)[None, :]
            next_decay = tl.where(at_last, 1.0, tl.exp2(next_step * (rate * _LOG2E)))
            read = c * slope + tl.where(at_last, carried, 0.0)
            _, d_state = tl.associative_scan((next_decay, read), 0, _then, reverse=True)
            tl.store(d_B + (part * length + t) * STATES + index,
                     tl.sum(d_state * step * value, 1), t < length)  # fmt: skip
            tl.store(d_C + (part * length + t) * STATES + index,
                     tl.sum(state * slope, 1), t < length)  # fmt: skip
            d_exponent = d_state * (state - added)  # of Δ A
            d_input += d_state * b
            d_step += d_exponent * rate
            d_rates += tl.where(own, tl.sum(d_exponent * step, 0)[None, :], 0.0)
            passed = tl.sum(tl.where(at_first, decay * d_state, 0.0), 0)[None, :]
            carry = tl.where(own, passed, carry)
        tl.store(d_u + places, d_input * step, there)
        tl.store(d_delta + places, d_step + d_input * value, there)
    tl.store(d_A + row * STATES * channels + at, d_rates, inside)
    tl.store(d_first + row * STATES * channels + at, carry, inside)
