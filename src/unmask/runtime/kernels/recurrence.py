"""Triton kernels of the selective scan h_t = exp(Δ_t A) h_(t-1) + Δ_t u_t B_t, y_t = C_t h_t.

`forward` and `backward` compute what `unmask.backbones.layers.scan_passes` computes in torch. A program
computes one chunk of a row for a block of channels. A thread holds PER states of one channel in its
registers, as tensors [groups, channels, 4 states]. Only sums over groups or channels cross threads.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

PER = 8  # states of a thread: 4, 8 or 16
TILE = 8  # positions whose states the backward kernel holds in registers
AHEAD = 2  # positions that the forward kernel loads before it needs them
MOST_STATES = 512  # with more, a program has too many threads
_PROGRAMS = 1 << 11  # with fewer programs, a row is split into chunks
_FEWEST = 4  # with fewer chunks, the first pass costs more than it saves
_SHORTEST = 64  # positions of a chunk
_LOG2E = tl.constexpr(1 / math.log(2))
_LN2 = tl.constexpr(math.log(2))

Rows = Float[Tensor, "rows length channels"]
Selected = Float[Tensor, "rows length states"]
States = Float32[Tensor, "rows states channels"]
Rates = Float32[Tensor, "states channels"]
Firsts = Float32[Tensor, "rows tiles states channels"]


def chosen_chunks(u: Rows, A: Rates) -> int:
    """The number of chunks of a row, so that programs fill a GPU."""
    programs = len(u) * triton.cdiv(u.shape[2], _shape(A)["BLOCK"])
    chunks = min(_PROGRAMS // max(1, programs), u.shape[1] // _SHORTEST)
    return chunks if chunks >= _FEWEST else 1


def firsts_shape(u: Rows, A: Rates, chunks: int) -> tuple[int, ...]:
    """Shape of the states before each tile, which the backward pass needs."""
    return (u.shape[0], -(-u.shape[1] // TILE), *A.shape)


def forward(
    u: Rows, delta: Rows, A: Rates, B: Selected, C: Selected, state: States, chunks: int
) -> tuple[Rows, States, Firsts]:
    """Outputs, states after the last position, and states before each tile."""
    u, delta, B, C, first = (x.contiguous() for x in (u, delta, B, C, state))
    y, firsts = torch.empty_like(u), A.new_empty(firsts_shape(u, A, chunks))
    last = A.new_empty(len(u), chunks, *A.shape)
    grid, sizes = _launch(u, A, chunks)
    if chunks > 1:
        total = A.new_empty(len(u), chunks, u.shape[2])
        _scan[grid](u, delta, A, B, B, u, u, last, u, total, **sizes, AHEAD=AHEAD, OUTPUT=False)
        first, _ = _received(last, total, A, first, backwards=False)
    _scan[grid](u, delta, A, B, C, first, y, last, firsts, u, **sizes, AHEAD=AHEAD, OUTPUT=True)
    return y, last[:, -1], firsts


def backward(
    u: Rows,
    delta: Rows,
    A: Rates,
    B: Selected,
    C: Selected,
    firsts: Firsts,
    d_y: Rows,
    d_last: States,
    chunks: int,
) -> tuple[Rows, Rows, Rates, Selected, Selected, States]:
    """Gradients of u, Δ, A, B, C and of the states before the first position."""
    u, delta, B, C, d_y, d_last = (x.contiguous() for x in (u, delta, B, C, d_y, d_last))
    d_u, d_delta = torch.empty_like(u), torch.empty_like(delta)
    d_A, d_first = (A.new_empty(len(u), chunks, *A.shape) for _ in range(2))
    grid, sizes = _launch(u, A, chunks)
    # each block of channels writes its own part, so that sums have a fixed order
    d_weights = A.new_empty(triton.cdiv(u.shape[2], sizes["BLOCK"]), *B.shape[:2], 2, len(A))
    if chunks > 1:
        total = A.new_empty(len(u), chunks, u.shape[2])
        _first_gradient[grid](delta, A, C, d_y, d_first, total, **sizes)
        d_last, d_state = _received(d_first, total, A, d_last, backwards=True)
    _gradients[grid](
        u, delta, A, B, C, firsts, d_y, d_last, d_u, d_delta, d_A, d_weights, d_first, **sizes
    )
    if chunks == 1:
        d_state = d_first[:, 0]
    d_B, d_C = d_weights.sum(0).unbind(2)
    return d_u, d_delta, d_A.sum((0, 1)), d_B, d_C, d_state


def _received(
    own: Tensor, total: Tensor, A: Rates, state: States, backwards: bool
) -> tuple[Tensor, States]:
    """The states that each chunk receives, and those that leave the last one."""
    received, last = torch.empty_like(own), torch.empty_like(state)
    rows, chunks, states, channels = own.shape
    block = 128
    grid = (rows * states * triton.cdiv(channels, block),)
    _pass_on[grid](
        own, total, A, state, received, last, chunks, channels,
        STATES=states, BLOCK=block, ROUND=8, BACKWARDS=backwards, num_warps=4,
    )  # fmt: skip
    return received, last


def _launch(u: Rows, A: Rates, chunks: int) -> tuple[tuple[int], dict[str, Any]]:
    """The grid and the sizes that the kernels share. Chunks are whole tiles."""
    shape = _shape(A)
    rows, length, channels = u.shape
    size = -(-length // (chunks * TILE)) * TILE
    sizes = {"length": length, "size": size, "channels": channels, "chunks": chunks}
    return (rows * chunks * triton.cdiv(channels, shape["BLOCK"]),), sizes | shape


def _shape(A: Rates) -> dict[str, int]:
    """Groups of states and channels of a program; together they are its threads."""
    wide = max(2 * PER, 16, triton.next_power_of_2(len(A)))
    return {
        **{"STATES": len(A), "WIDE": wide, "PER": PER, "GROUPS": wide // PER, "BLOCK": 2 * PER},
        **{"TILE": TILE, "num_warps": wide // 16},
    }


@triton.jit
def _place(length, size, channels, chunks, BLOCK: tl.constexpr):
    """Chunk of all rows, block of channels, row, and positions of a program."""
    blocks = tl.cdiv(channels, BLOCK)
    part, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    start = part % chunks * size
    row = (part // chunks).to(tl.int64)
    return part.to(tl.int64), block, row, start, tl.minimum(start + size, length)


@triton.jit
def _apart(x, COUNT: tl.constexpr):
    """The parts x[0], x[1], … of [count, groups, channels, states]; a thread holds all of them."""
    G: tl.constexpr = x.shape[1]
    W: tl.constexpr = x.shape[2]
    K: tl.constexpr = x.shape[3]
    parts = (tl.permute(x, (1, 2, 3, 0)),)
    for level in tl.static_range(10):
        if 2**level < COUNT:
            evens = ()
            odds = ()
            for i in tl.static_range(2**level):
                rest = tl.reshape(parts[i], [G, W, K, COUNT // 2 ** (level + 1), 2])
                even, odd = tl.split(rest)
                evens = evens + (even,)
                odds = odds + (odd,)
            parts = evens + odds
    found = ()
    for i in tl.static_range(COUNT):
        found = found + (tl.reshape(parts[i], [G, W, K]),)
    return found


@triton.jit
def _together(parts, COUNT: tl.constexpr):
    """The inverse of `_apart`."""
    G: tl.constexpr = parts[0].shape[0]
    W: tl.constexpr = parts[0].shape[1]
    K: tl.constexpr = parts[0].shape[2]
    for level in tl.static_range(10):
        if 2**level < COUNT:
            joined = ()
            for i in tl.static_range(COUNT // 2 ** (level + 1)):
                pair = tl.join(parts[i], parts[i + COUNT // 2 ** (level + 1)])
                joined = joined + (tl.reshape(pair, [G, W, K, 2 ** (level + 1)]),)
            parts = joined
    return tl.permute(tl.reshape(parts[0], [G, W, K, COUNT]), (3, 0, 1, 2))


@triton.jit
def _four(x, at, n, real, channels, i: tl.constexpr, STATES: tl.constexpr):
    """Pointers to the states 4 i … 4 i + 3 of each group, and a mask: [4, groups, channels, 1]."""
    j = 4 * i + tl.arange(0, 4)[:, None, None, None]
    index = n[None] + j
    return x + tl.max_contiguous(at[None] + index * channels, [1, 1, 1, 1]), real[None] & (index < STATES)


@triton.jit
def _states(x, at, n, real, channels, i: tl.constexpr, STATES: tl.constexpr):
    """Four states of each group: [groups, channels, 4]."""
    pointers, inside = _four(x, at, n, real, channels, i, STATES)
    found = tl.permute(tl.load(pointers, inside, 0.0), (1, 2, 3, 0))
    return tl.reshape(found, [found.shape[0], found.shape[1], 4])


@triton.jit
def _keep(x, at, n, real, channels, states, i: tl.constexpr, STATES: tl.constexpr):
    """Stores four states of each group."""
    pointers, inside = _four(x, at, n, real, channels, i, STATES)
    wide = tl.reshape(states, [states.shape[0], states.shape[1], 1, 4])
    tl.store(pointers, tl.permute(wide, (3, 0, 1, 2)), inside)


@triton.jit
def _weights(x, index, i: tl.constexpr, STATES: tl.constexpr, WIDE: tl.constexpr):
    """B or C of four states; padded states are zero."""
    if STATES == WIDE:
        return tl.load(x + 4 * i)
    else:
        return tl.load(x + 4 * i, index + 4 * i < STATES, 0.0)


@triton.jit
def _position(
    u, delta, B, C, t, end, channels, d, real, index,
    STATES: tl.constexpr, WIDE: tl.constexpr, PER: tl.constexpr, OUTPUT: tl.constexpr,
):  # fmt: skip
    """Δ, u, B and C of one position. After the end Δ is zero."""
    at = tl.minimum(t, end - 1)
    step = tl.load(delta + (at * channels + d), real & (t < end), 0.0)
    value = tl.load(u + (at * channels + d), real, 0.0)
    b = ()
    c = ()
    for i in tl.static_range(PER // 4):
        b = b + (_weights(B + (at * STATES + index), index, i, STATES, WIDE),)
        if OUTPUT:
            c = c + (_weights(C + (at * STATES + index), index, i, STATES, WIDE),)
    return step, value, b, c


@triton.jit(do_not_specialize=["length", "size"])
def _scan(
    u, delta, A, B, C, first, y, last, firsts, total, length, size, channels, chunks,
    STATES: tl.constexpr, WIDE: tl.constexpr, PER: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr, AHEAD: tl.constexpr, OUTPUT: tl.constexpr,
):  # fmt: skip
    """Steps through a chunk. Writes the last states and, with OUTPUT, y and the first states of tiles.

    Without OUTPUT, the chunk begins with states of zero, and the sum of its Δ is written.
    """
    part, block, row, start, end = _place(length, size, channels, chunks, BLOCK)
    n = PER * tl.arange(0, GROUPS)[:, None, None]  # first state of each group
    w = tl.arange(0, BLOCK)[None, :, None]
    d = block * BLOCK + w + 0 * n
    real = d < channels
    index = n + 0 * w + tl.arange(0, 4)[None, None, :]
    out = block * BLOCK + tl.arange(0, BLOCK)[:, None]
    u += row * length * channels
    delta += row * length * channels
    y += row * length * channels
    B += row * length * STATES
    C += row * length * STATES
    first_tile = row * tl.cdiv(length, TILE)
    rates = ()
    states = ()
    for i in tl.static_range(PER // 4):
        rates = rates + (_states(A, d, n, real, channels, i, STATES) * _LOG2E,)
        if OUTPUT:
            states = states + (
                _states(first + part * STATES * channels, d, n, real, channels, i, STATES),
            )
        else:
            states = states + (tl.zeros([GROUPS, BLOCK, 4], tl.float32),)
    passed = tl.zeros([GROUPS, BLOCK, 1], tl.float32)
    ahead = ()
    for k in tl.static_range(AHEAD):
        ahead = ahead + (
            _position(
                u, delta, B, C, start + k, end, channels, d, real, index, STATES, WIDE, PER, OUTPUT
            ),
        )
    for t in range(start, end, TILE):
        if OUTPUT:
            tile = firsts + (first_tile + t // TILE) * STATES * channels
            for i in tl.static_range(PER // 4):
                _keep(tile, d, n, real, channels, states[i], i, STATES)
        for k in tl.static_range(TILE):
            ahead = ahead + (
                _position(
                    u, delta, B, C, t + k + AHEAD, end, channels, d, real, index,
                    STATES, WIDE, PER, OUTPUT,
                ),
            )  # fmt: skip
            step = ahead[0][0].to(tl.float32)
            added = step * ahead[0][1].to(tl.float32)
            output = tl.zeros([GROUPS, BLOCK], tl.float32)
            after = ()
            for i in tl.static_range(PER // 4):
                b = ahead[0][2][i].to(tl.float32)
                after = after + (tl.exp2(step * rates[i]) * states[i] + added * b,)
                if OUTPUT:
                    output += tl.sum(ahead[0][3][i].to(tl.float32) * after[i], 2)
            states = after
            if OUTPUT:
                there = (out < channels) & (t + k < end)
                tl.store(y + ((t + k) * channels + out), tl.sum(output, 0)[:, None], there)
            else:
                passed += step
            ahead = ahead[1:]
    for i in tl.static_range(PER // 4):
        _keep(last + part * STATES * channels, d, n, real, channels, states[i], i, STATES)
    if not OUTPUT:
        tl.store(total + part * channels + d, passed, real & (n == 0))


@triton.jit(do_not_specialize=["length", "size"])
def _first_gradient(
    delta, A, C, d_y, d_first, total, length, size, channels, chunks,
    STATES: tl.constexpr, WIDE: tl.constexpr, PER: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Steps backwards through a chunk; writes the gradient of its first states and the sum of its Δ."""
    part, block, row, start, end = _place(length, size, channels, chunks, BLOCK)
    n = PER * tl.arange(0, GROUPS)[:, None, None]
    w = tl.arange(0, BLOCK)[None, :, None]
    d = block * BLOCK + w + 0 * n
    real = d < channels
    index = n + 0 * w + tl.arange(0, 4)[None, None, :]
    delta += row * length * channels
    d_y += row * length * channels
    C += row * length * STATES
    rates = ()
    carries = ()
    for i in tl.static_range(PER // 4):
        rates = rates + (_states(A, d, n, real, channels, i, STATES) * _LOG2E,)
        carries = carries + (tl.zeros([GROUPS, BLOCK, 4], tl.float32),)
    passed = tl.zeros([GROUPS, BLOCK, 1], tl.float32)
    tiles = tl.cdiv(tl.maximum(end - start, 0), TILE)
    for back in range(tiles):
        t = start + (tiles - 1 - back) * TILE
        steps = ()
        slopes = ()
        weights = ()
        for k in tl.static_range(TILE):
            at = tl.minimum(t + k, end - 1)
            there = real & (t + k < end)
            steps = steps + (tl.load(delta + (at * channels + d), there, 0.0),)
            slopes = slopes + (tl.load(d_y + (at * channels + d), there, 0.0),)
            c = ()
            for i in tl.static_range(PER // 4):
                c = c + (_weights(C + (at * STATES + index), index, i, STATES, WIDE),)
            weights = weights + (c,)
        for k in tl.static_range(TILE - 1, -1, -1):
            step = steps[k].to(tl.float32)
            slope = slopes[k].to(tl.float32)
            before = ()
            for i in tl.static_range(PER // 4):
                d_state = weights[k][i].to(tl.float32) * slope + carries[i]
                before = before + (tl.exp2(step * rates[i]) * d_state,)
            carries = before
            passed += step
    for i in tl.static_range(PER // 4):
        _keep(d_first + part * STATES * channels, d, n, real, channels, carries[i], i, STATES)
    tl.store(total + part * channels + d, passed, real & (n == 0))


@triton.jit
def _pass_on(
    own, total, A, state, received, last, chunks, channels,
    STATES: tl.constexpr, BLOCK: tl.constexpr, ROUND: tl.constexpr, BACKWARDS: tl.constexpr,
):  # fmt: skip
    """Steps through the chunks of a row, for one state of a block of channels."""
    blocks = tl.cdiv(channels, BLOCK)
    line = (tl.program_id(0) // blocks).to(tl.int64)  # row and state
    row, n = line // STATES, line % STATES
    d = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    real = d < channels
    rate = tl.load(A + n * channels + d, real, 0.0) * _LOG2E
    carry = tl.load(state + line * channels + d, real, 0.0)
    for begin in range(0, chunks, ROUND):
        decays = ()
        added = ()
        for k in tl.static_range(ROUND):  # loads do not wait for the chunks before
            there = real & (begin + k < chunks)
            chunk = row * chunks + (chunks - 1 - begin - k if BACKWARDS else begin + k)
            decays = decays + (tl.exp2(rate * tl.load(total + chunk * channels + d, there, 0.0)),)
            added = added + (tl.load(own + (chunk * STATES + n) * channels + d, there, 0.0),)
        for k in tl.static_range(ROUND):
            there = real & (begin + k < chunks)
            chunk = row * chunks + (chunks - 1 - begin - k if BACKWARDS else begin + k)
            tl.store(received + (chunk * STATES + n) * channels + d, carry, there)
            carry = decays[k] * carry + added[k]
    tl.store(last + line * channels + d, carry, real)


@triton.jit
def _merged(a, b, BIT: tl.constexpr):
    """Sums over pairs of channels: of `a` in channels whose number has BIT unset, of `b` in the others.

    The numbers of a pair differ in BIT. A merge for each bit sums as many tensors as there are
    channels, each over all channels, with one exchange between threads a value.
    """
    G: tl.constexpr = a.shape[0]
    W: tl.constexpr = a.shape[1]
    K: tl.constexpr = a.shape[2]
    unset = (tl.arange(0, W) // BIT % 2 == 0)[None, :, None]
    bits = tl.where(unset, b, a).to(tl.int32, bitcast=True)
    sent = tl.reshape(bits, [G, W // (2 * BIT), 2, BIT, K])
    other = tl.sum(sent, 2, keep_dims=True) - sent  # exact: an exchange in integers
    return tl.where(unset, a, b) + tl.reshape(other, [G, W, K]).to(tl.float32, bitcast=True)


@triton.jit
def _halves(x):
    """Even and odd entries of the last axis."""
    G: tl.constexpr = x.shape[0]
    W: tl.constexpr = x.shape[1]
    K: tl.constexpr = x.shape[2] // 2
    even, odd = tl.split(tl.reshape(x, [G, W, K, 2]))
    return even, odd


@triton.jit(do_not_specialize=["length", "size"])
def _gradients(
    u, delta, A, B, C, firsts, d_y, d_last, d_u, d_delta, d_A, d_weights, d_first,
    length, size, channels, chunks,
    STATES: tl.constexpr, WIDE: tl.constexpr, PER: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Recomputes the states of each tile from its first states, the last tile first."""
    part, block, row, start, end = _place(length, size, channels, chunks, BLOCK)
    n = PER * tl.arange(0, GROUPS)[:, None, None]
    w = tl.arange(0, BLOCK)[None, :, None]
    d = block * BLOCK + w + 0 * n
    real = d < channels
    local = tl.arange(0, TILE)[:, None, None, None]
    index = n + 0 * w + tl.arange(0, 4)[None, None, :]
    merged_index = n + w % PER  # state whose sum over channels a thread gets; B before C
    merged_at = w // PER * STATES + merged_index
    u += row * length * channels
    delta += row * length * channels
    d_y += row * length * channels
    d_u += row * length * channels
    d_delta += row * length * channels
    B += row * length * STATES
    C += row * length * STATES
    rows = tl.num_programs(0) // (tl.cdiv(channels, BLOCK) * chunks)
    d_weights += (block.to(tl.int64) * rows + row) * length * (2 * STATES)
    first_tile = row * tl.cdiv(length, TILE)
    rates = ()
    carries = ()
    d_rates = ()
    for i in tl.static_range(PER // 4):
        rates = rates + (_states(A, d, n, real, channels, i, STATES) * _LOG2E,)
        carries = carries + (
            _states(d_last + part * STATES * channels, d, n, real, channels, i, STATES),
        )
        d_rates = d_rates + (tl.zeros([GROUPS, BLOCK, 4], tl.float32),)
    tiles = tl.cdiv(tl.maximum(end - start, 0), TILE)
    for back in range(tiles):
        t = start + (tiles - 1 - back) * TILE
        place = tl.minimum(t + local, end - 1)
        at = tl.max_contiguous(place * channels + d[None], [1, 1, 1, 1])
        there = real[None] & (t + local < end)
        all_steps = tl.load(delta + at, there, 0.0).to(tl.float32)
        all_values = tl.load(u + at, real[None], 0.0).to(tl.float32)
        steps = _apart(all_steps, TILE)
        inputs = _apart(all_steps * all_values, TILE)
        slopes = _apart(tl.load(d_y + at, there, 0.0).to(tl.float32), TILE)
        tile = firsts + (first_tile + t // TILE) * STATES * channels
        after_carries = ()
        after_rates = ()
        sums = ()
        d_inputs = ()
        d_steps = ()
        for k in tl.static_range(TILE):
            d_inputs = d_inputs + (tl.zeros([GROUPS, BLOCK, 1], tl.float32),)
            d_steps = d_steps + (tl.zeros([GROUPS, BLOCK, 1], tl.float32),)
        for i in tl.static_range(PER // 4):
            at_weights = place * STATES + index[None]
            b = _apart(_weights(B + at_weights, index[None], i, STATES, WIDE).to(tl.float32), TILE)
            c = _apart(_weights(C + at_weights, index[None], i, STATES, WIDE).to(tl.float32), TILE)
            state = _states(tile, d, n, real, channels, i, STATES)
            befores = ()
            decays = ()
            for k in tl.static_range(TILE):
                befores = befores + (state,)
                decays = decays + (tl.exp2(steps[k] * rates[i]),)
                state = decays[k] * state + inputs[k] * b[k]
            carry = carries[i]
            d_rate = d_rates[i]
            new_inputs = ()
            new_steps = ()
            new_sums = ()
            for k in tl.static_range(TILE - 1, -1, -1):
                d_state = c[k] * slopes[k] + carry
                even, odd = _halves(_merged(d_state * inputs[k], state * slopes[k], PER))
                even, odd = _halves(_merged(even, odd, 1))
                new_sums = (_merged(even, odd, 2),) + new_sums
                carry = decays[k] * d_state
                state = befores[k]
                d_exponent = carry * state  # of Δ A
                new_inputs = (d_inputs[k] + tl.sum(d_state * b[k], 2, keep_dims=True),) + new_inputs
                d_step = d_steps[k] + tl.sum(d_exponent * rates[i], 2, keep_dims=True)
                new_steps = (d_step,) + new_steps
                d_rate += d_exponent * steps[k]
            d_inputs = new_inputs
            d_steps = new_steps
            after_carries = after_carries + (carry,)
            after_rates = after_rates + (d_rate,)
            sums = sums + (_together(new_sums, TILE),)
        carries = after_carries
        d_rates = after_rates
        tl.store(
            d_weights
            + tl.max_contiguous((t + local) * (2 * STATES) + merged_at[None], [1, 1, 1, 1]),
            _all_merged(sums, PER, TILE), (merged_index[None] < STATES) & (t + local < end),
        )  # fmt: skip
        d_input = tl.sum(_together(d_inputs, TILE), 1, keep_dims=True)
        d_step = tl.sum(_together(d_steps, TILE), 1, keep_dims=True) * _LN2
        one = there & (n == 0)[None]
        tl.store(d_u + at, d_input * all_steps, one)
        tl.store(d_delta + at, d_step + d_input * all_values, one)
    for i in tl.static_range(PER // 4):
        _keep(d_A + part * STATES * channels, d, n, real, channels, d_rates[i], i, STATES)
        _keep(d_first + part * STATES * channels, d, n, real, channels, carries[i], i, STATES)


@triton.jit
def _all_merged(sums, PER: tl.constexpr, TILE: tl.constexpr):
    """The last merges, of the states 4 i … 4 i + 3 of all i: [tile, groups, channels, 1]."""
    parts = ()
    for i in tl.static_range(PER // 4):
        x = tl.permute(sums[i], (1, 2, 3, 0))
        parts = parts + (tl.reshape(x, [x.shape[0], x.shape[1], TILE]),)
    if PER == 16:
        parts = (_merged(parts[0], parts[1], 4), _merged(parts[2], parts[3], 4))
    if PER >= 8:
        parts = (_merged(parts[0], parts[1], PER // 2),)
    x = tl.reshape(parts[0], [parts[0].shape[0], parts[0].shape[1], 1, TILE])
    return tl.permute(x, (3, 0, 1, 2))
