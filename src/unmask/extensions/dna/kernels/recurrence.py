"""Triton kernels of the selective scan h_t = exp(Δ_t A) h_(t-1) + Δ_t u_t B_t, y_t = C_t h_t.

`forward` and `backward` compute what `unmask.extensions.dna.layers.scan_passes` computes in torch.
A program computes one chunk of a row for 2 PER channels. A thread holds PER states of one channel
in registers, as tensors [threads, 4 states]. Only sums over all states or over channels cross
threads.

Loads and stores are [positions, threads] or [positions, threads, 4 states]. `max_contiguous` and
`multiple_of` give their offsets an order of axes, the last axis first. With it, Triton spreads the
axis of threads over threads, and a thread holds all positions.
"""

# tuples of kernels grow in unrolled loops, and Triton compiles no unpacking of tuples
# ruff: noqa: RUF005
# mypy: disable-error-code="assignment,misc,var-annotated"

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
_SHORTEST = 64  # fewest positions of a chunk
_LOG2E = tl.constexpr(1 / math.log(2))
_LN2 = tl.constexpr(math.log(2))

Rows = Float[Tensor, "rows length channels"]
Selected = Float[Tensor, "rows length states"]
States = Float32[Tensor, "rows states channels"]
Rates = Float32[Tensor, "states channels"]
Firsts = Float32[Tensor, "rows tiles states channels"]


def chosen_chunks(u: Rows, A: Rates) -> int:
    """The number of chunks of a row, so that programs fill a GPU."""
    programs = u.shape[0] * triton.cdiv(u.shape[2], 2 * PER)
    chunks = min(_PROGRAMS // max(1, programs), u.shape[1] // _SHORTEST)
    return chunks if chunks >= _FEWEST else 1


def firsts_shape(u: Rows, A: Rates, chunks: int) -> tuple[int, ...]:
    """Shape of the states before each tile, which the backward pass needs."""
    return (u.shape[0], -(-u.shape[1] // TILE), *A.shape)


def forward(
    u: Rows, delta: Rows, A: Rates, B: Selected, C: Selected, state: States, chunks: int
) -> tuple[Rows, States, Firsts]:
    """Outputs, states after the last position, and states before each tile."""
    u, delta, first = (x.contiguous() for x in (u, delta, state))
    B, C = (x.float().contiguous() for x in (B, C))  # else every thread would convert them
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
    u, delta, d_y, d_last = (x.contiguous() for x in (u, delta, d_y, d_last))
    B, C = (x.float().contiguous() for x in (B, C))
    d_u, d_delta = torch.empty_like(u), torch.empty_like(delta)
    d_A, d_first = (A.new_empty(len(u), chunks, *A.shape) for _ in range(2))
    grid, sizes = _launch(u, A, chunks)
    # each block of channels writes its own part, so that sums have a fixed order
    d_weights = A.new_empty(triton.cdiv(u.shape[2], 2 * PER), *B.shape[:2], 2, len(A))
    if chunks > 1:
        total = A.new_empty(len(u), chunks, u.shape[2])
        _first_gradient[grid](delta, A, C, d_y, d_first, total, **sizes)
        d_last, d_state = _received(d_first, total, A, d_last, backwards=True)
    _gradients[grid](
        u, delta, A, B, C, firsts, d_y, d_last, d_u, d_delta, d_A, d_weights, d_first, **sizes
    )
    if chunks == 1:
        d_state = d_first[:, 0]
    # copies: an operator cannot return two views of one tensor
    d_B, d_C = (part.clone() for part in d_weights.sum(0).unbind(2))
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
    rows, length, channels = u.shape
    size = -(-length // (chunks * TILE)) * TILE
    sizes = {"length": length, "size": size, "channels": channels, "chunks": chunks}
    return (rows * chunks * triton.cdiv(channels, 2 * PER),), sizes | _shape(A)


def _shape(A: Rates) -> dict[str, int]:
    """Threads of a program: a block of 2 PER channels for each group of PER states."""
    lanes = 2 * max(PER, 16, triton.next_power_of_2(len(A)))
    shape = {"STATES": len(A), "PER": PER, "LANES": lanes, "TILE": TILE}
    return shape | {"num_warps": lanes // 32}


@triton.jit
def _place(length, size, channels, chunks, PER: tl.constexpr, LANES: tl.constexpr):
    """Chunk, row, block, first and last position of a program;
    channel and first state of each thread.
    """
    blocks = tl.cdiv(channels, 2 * PER)
    part, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    row, start = (part // chunks).to(tl.int64), part % chunks * size
    lane = tl.arange(0, LANES)
    d, n = block * (2 * PER) + lane % (2 * PER), lane // (2 * PER) * PER
    return part.to(tl.int64), row, block, start, tl.minimum(start + size, length), d, n


@triton.jit
def _apart(x, COUNT: tl.constexpr):
    """The parts x[0], x[1], … of [count, threads, states].
    A thread holds its values of all parts.
    """
    L: tl.constexpr = x.shape[1]
    K: tl.constexpr = x.shape[2]
    parts = (tl.permute(x, (1, 2, 0)),)
    for level in tl.static_range(5):
        if 2**level < COUNT:
            evens = ()
            odds = ()
            for i in tl.static_range(2**level):
                pairs = tl.reshape(parts[i], [L, K, COUNT // 2 ** (level + 1), 2])
                even, odd = tl.split(pairs)
                evens = evens + (even,)
                odds = odds + (odd,)
            parts = evens + odds
    found = ()
    for i in tl.static_range(COUNT):
        found = found + (tl.reshape(parts[i], [L, K]),)
    return found


@triton.jit
def _together(parts, COUNT: tl.constexpr):
    """The inverse of `_apart` for one state: [count, threads]."""
    L: tl.constexpr = parts[0].shape[0]
    for level in tl.static_range(5):
        if 2**level < COUNT:
            joined = ()
            for i in tl.static_range(COUNT // 2 ** (level + 1)):
                pair = tl.join(parts[i], parts[i + COUNT // 2 ** (level + 1)])
                joined = joined + (tl.reshape(pair, [L, 2 ** (level + 1)]),)
            parts = joined
    return tl.permute(tl.reshape(parts[0], [L, COUNT]), (1, 0))


@triton.jit
def _four(n, d, channels, i: tl.constexpr, STATES: tl.constexpr):
    """Offsets of the states 4 i … 4 i + 3 of each thread, and a mask: [4, threads]."""
    index = n[None, :] + 4 * i + tl.arange(0, 4)[:, None]
    at = tl.multiple_of(tl.max_contiguous(index * channels + d[None, :], [1, 2]), [1, 1])
    return at, (d < channels)[None, :] & (index < STATES)


@triton.jit
def _states(x, n, d, channels, i: tl.constexpr, STATES: tl.constexpr):
    """Four states of each thread: [threads, 4]."""
    at, inside = _four(n, d, channels, i, STATES)
    return tl.permute(tl.load(x + at, inside, 0.0), (1, 0))


@triton.jit
def _keep(x, n, d, channels, states, i: tl.constexpr, STATES: tl.constexpr):
    """Stores four states of each thread."""
    at, inside = _four(n, d, channels, i, STATES)
    tl.store(x + at, tl.permute(states, (1, 0)), inside)


@triton.jit
def _weights(
    x, t, end, n, PER: tl.constexpr, COUNT: tl.constexpr, STATES: tl.constexpr, LANES: tl.constexpr
):
    """B or C of COUNT positions, four states at a time: each [count, threads, 4]."""
    place = tl.minimum(t + tl.arange(0, COUNT), end - 1)[:, None, None]
    index = n[None, :, None] + tl.arange(0, 4)[None, None, :]
    # not true of the axis of threads, but harmless: a thread has one entry of it
    at = tl.max_contiguous(place * STATES + index, [1, 2, 4])
    found = ()
    for i in tl.static_range(PER // 4):
        if 2 * STATES == LANES:
            found = found + (tl.load(x + 4 * i + at),)
        else:  # padded states are zero
            found = found + (tl.load(x + 4 * i + at, index + 4 * i < STATES, 0.0),)
    return found


@triton.jit
def _channels(t, end, d, channels, COUNT: tl.constexpr):
    """Offsets of COUNT positions of a channel, at most the last one;
    masks of channels and of both.
    """
    place = t + tl.arange(0, COUNT)[:, None]
    at = tl.minimum(place, end - 1) * channels + d[None, :]
    at = tl.multiple_of(tl.max_contiguous(at, [1, 2]), [1, 1])
    real = (d < channels)[None, :]
    return at, real, real & (place < end)


@triton.jit(do_not_specialize=["length", "size", "chunks"])
def _scan(
    u, delta, A, B, C, first, y, last, firsts, total, length, size, channels, chunks,
    STATES: tl.constexpr, PER: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
    AHEAD: tl.constexpr, OUTPUT: tl.constexpr,
):  # fmt: skip
    """Steps through a chunk. Writes the last states and, with OUTPUT,
    y and the first states of tiles.

    Without OUTPUT, the chunk begins with states of zero, and the sum of its Δ is written.
    """
    part, row, _block, start, end, d, n = _place(length, size, channels, chunks, PER, LANES)
    u += row * length * channels
    delta += row * length * channels
    y += row * length * channels
    B += row * length * STATES
    C += row * length * STATES
    first_tile = row * tl.cdiv(length, TILE)
    own = part * STATES * channels
    rates = ()
    states = ()
    for i in tl.static_range(PER // 4):
        rates = rates + (_states(A, n, d, channels, i, STATES) * _LOG2E,)
        if OUTPUT:
            states = states + (_states(first + own, n, d, channels, i, STATES),)
        else:
            states = states + (tl.zeros([LANES, 4], tl.float32),)
    passed = tl.zeros([LANES, 1], tl.float32)
    at, real, there = _channels(start, end, d, channels, AHEAD)
    next_steps, next_values = tl.load(delta + at, there, 0.0), tl.load(u + at, real, 0.0)
    next_b = _weights(B, start, end, n, PER, AHEAD, STATES, LANES)
    if OUTPUT:
        next_c = _weights(C, start, end, n, PER, AHEAD, STATES, LANES)
    for t in range(start, end, TILE):
        if OUTPUT:
            tile = firsts + (first_tile + t // TILE) * STATES * channels
            for i in tl.static_range(PER // 4):
                _keep(tile, n, d, channels, states[i], i, STATES)
        for s in tl.static_range(0, TILE, AHEAD):
            all_steps = next_steps.to(tl.float32)
            steps = _apart(all_steps[:, :, None], AHEAD)
            inputs = _apart((all_steps * next_values.to(tl.float32))[:, :, None], AHEAD)
            all_b = next_b
            if OUTPUT:
                all_c = next_c
            # the next positions are loaded before the states of these are computed
            soon = t + s + AHEAD
            at, real, there = _channels(soon, end, d, channels, AHEAD)
            next_steps, next_values = tl.load(delta + at, there, 0.0), tl.load(u + at, real, 0.0)
            next_b = _weights(B, soon, end, n, PER, AHEAD, STATES, LANES)
            if OUTPUT:
                next_c = _weights(C, soon, end, n, PER, AHEAD, STATES, LANES)
            outputs = ()
            for k in tl.static_range(AHEAD):
                outputs = outputs + (tl.zeros([LANES, 1], tl.float32),)
                if not OUTPUT:
                    passed += steps[k]
            after = ()
            for i in tl.static_range(PER // 4):
                state = states[i]
                b = _apart(all_b[i].to(tl.float32), AHEAD)
                if OUTPUT:
                    c = _apart(all_c[i].to(tl.float32), AHEAD)
                read = ()
                for k in tl.static_range(AHEAD):
                    state = tl.exp2(steps[k] * rates[i]) * state + inputs[k] * b[k]
                    if OUTPUT:
                        read = read + (outputs[k] + tl.sum(c[k] * state, 1, keep_dims=True),)
                if OUTPUT:
                    outputs = read
                after = after + (state,)
            states = after
            if OUTPUT:
                at, real, there = _channels(t + s, end, d, channels, AHEAD)
                output = _over_groups(_together(outputs, AHEAD), PER)
                tl.store(y + at, output, there & (n == 0)[None, :])
    for i in tl.static_range(PER // 4):
        _keep(last + own, n, d, channels, states[i], i, STATES)
    if not OUTPUT:
        whose = (d < channels) & (n == 0)
        tl.store(total + part * channels + d, tl.reshape(passed, [LANES]), whose)


@triton.jit
def _over_groups(x, PER: tl.constexpr):
    """The sum over the groups of states, for every thread: [count, threads]."""
    T: tl.constexpr = x.shape[0]
    L: tl.constexpr = x.shape[1]
    groups = tl.reshape(x, [T, L // (2 * PER), 2 * PER])
    total = tl.broadcast_to(tl.sum(groups, 1, keep_dims=True), [T, L // (2 * PER), 2 * PER])
    return tl.reshape(total, [T, L])


@triton.jit(do_not_specialize=["length", "size", "chunks"])
def _first_gradient(
    delta, A, C, d_y, d_first, total, length, size, channels, chunks,
    STATES: tl.constexpr, PER: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Steps backwards through a chunk; writes the gradient of its first states
    and the sum of its Δ.
    """
    part, row, _block, start, end, d, n = _place(length, size, channels, chunks, PER, LANES)
    delta += row * length * channels
    d_y += row * length * channels
    C += row * length * STATES
    rates = ()
    carries = ()
    for i in tl.static_range(PER // 4):
        rates = rates + (_states(A, n, d, channels, i, STATES) * _LOG2E,)
        carries = carries + (tl.zeros([LANES, 4], tl.float32),)
    passed = tl.zeros([LANES, 1], tl.float32)
    tiles = tl.cdiv(tl.maximum(end - start, 0), TILE)
    for back in range(tiles):
        t = start + (tiles - 1 - back) * TILE
        at, _real, there = _channels(t, end, d, channels, TILE)
        steps = _apart(tl.load(delta + at, there, 0.0).to(tl.float32)[:, :, None], TILE)
        slopes = _apart(tl.load(d_y + at, there, 0.0).to(tl.float32)[:, :, None], TILE)
        weights = _weights(C, t, end, n, PER, TILE, STATES, LANES)
        before = ()
        for i in tl.static_range(PER // 4):
            carry = carries[i]
            c = _apart(weights[i].to(tl.float32), TILE)
            for k in tl.static_range(TILE - 1, -1, -1):
                carry = tl.exp2(steps[k] * rates[i]) * (c[k] * slopes[k] + carry)
            before = before + (carry,)
        carries = before
        for k in tl.static_range(TILE):
            passed += steps[k]
    for i in tl.static_range(PER // 4):
        _keep(d_first + part * STATES * channels, n, d, channels, carries[i], i, STATES)
    whose = (d < channels) & (n == 0)
    tl.store(total + part * channels + d, tl.reshape(passed, [LANES]), whose)


@triton.jit(do_not_specialize=["chunks"])
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
        for k in tl.static_range(ROUND):  # these loads do not wait for earlier chunks
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
    """Sums over pairs of threads: of `a` in threads whose number has BIT unset,
    of `b` in the others.

    The numbers of a pair differ in BIT. With a merge for each bit, 2^bits tensors are summed over
    all threads. This needs one exchange between threads a value, where `tl.sum` needs one a bit.
    """
    L: tl.constexpr = a.shape[0]
    K: tl.constexpr = a.shape[1]
    unset = (tl.arange(0, L) // BIT % 2 == 0)[:, None]
    bits = tl.where(unset, b, a).to(tl.int32, bitcast=True)
    sent = tl.reshape(bits, [L // (2 * BIT), 2, BIT, K])
    other = tl.sum(sent, 1, keep_dims=True) - sent  # exact, since integers are exchanged
    return tl.where(unset, a, b) + tl.reshape(other, [L, K]).to(tl.float32, bitcast=True)


@triton.jit
def _halves(x):
    """Even and odd entries of the last axis."""
    L: tl.constexpr = x.shape[0]
    K: tl.constexpr = x.shape[1] // 2
    even, odd = tl.split(tl.reshape(x, [L, K, 2]))
    return even, odd


@triton.jit(do_not_specialize=["length", "size", "chunks"])
def _gradients(
    u, delta, A, B, C, firsts, d_y, d_last, d_u, d_delta, d_A, d_weights, d_first,
    length, size, channels, chunks,
    STATES: tl.constexpr, PER: tl.constexpr, LANES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Recomputes the states of each tile from its first states, the last tile first."""
    part, row, block, start, end, d, n = _place(length, size, channels, chunks, PER, LANES)
    u += row * length * channels
    delta += row * length * channels
    d_y += row * length * channels
    d_u += row * length * channels
    d_delta += row * length * channels
    B += row * length * STATES
    C += row * length * STATES
    rows = tl.num_programs(0) // (tl.cdiv(channels, 2 * PER) * chunks)
    d_weights += (block.to(tl.int64) * rows + row) * length * (2 * STATES)
    first_tile = row * tl.cdiv(length, TILE)
    own = part * STATES * channels
    # after all merges, a thread has the sum over channels of one state: of B, or of C
    lane = tl.arange(0, LANES) % (2 * PER)
    summed = n + lane % PER
    at_summed = lane // PER * STATES + summed
    rates = ()
    carries = ()
    d_rates = ()
    for i in tl.static_range(PER // 4):
        rates = rates + (_states(A, n, d, channels, i, STATES) * _LOG2E,)
        carries = carries + (_states(d_last + own, n, d, channels, i, STATES),)
        d_rates = d_rates + (tl.zeros([LANES, 4], tl.float32),)
    tiles = tl.cdiv(tl.maximum(end - start, 0), TILE)
    for back in range(tiles):
        t = start + (tiles - 1 - back) * TILE
        at, real, there = _channels(t, end, d, channels, TILE)
        all_steps = tl.load(delta + at, there, 0.0).to(tl.float32)
        all_inputs = all_steps * tl.load(u + at, real, 0.0).to(tl.float32)
        steps = _apart(all_steps[:, :, None], TILE)
        inputs = _apart(all_inputs[:, :, None], TILE)
        slopes = _apart(tl.load(d_y + at, there, 0.0).to(tl.float32)[:, :, None], TILE)
        all_b = _weights(B, t, end, n, PER, TILE, STATES, LANES)
        all_c = _weights(C, t, end, n, PER, TILE, STATES, LANES)
        tile = firsts + (first_tile + t // TILE) * STATES * channels
        d_inputs = ()
        d_steps = ()
        for _k in tl.static_range(TILE):
            d_inputs = d_inputs + (tl.zeros([LANES, 1], tl.float32),)
            d_steps = d_steps + (tl.zeros([LANES, 1], tl.float32),)
        new_carries = ()
        new_rates = ()
        sums = ()
        for i in tl.static_range(PER // 4):
            b = _apart(all_b[i].to(tl.float32), TILE)
            c = _apart(all_c[i].to(tl.float32), TILE)
            state = _states(tile, n, d, channels, i, STATES)
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
                d_input = d_inputs[k] + tl.sum(d_state * b[k], 1, keep_dims=True)  # of Δ u
                new_inputs = (d_input,) + new_inputs
                d_step = d_steps[k] + tl.sum(d_exponent * rates[i], 1, keep_dims=True)
                new_steps = (d_step,) + new_steps
                d_rate += d_exponent * steps[k]
            d_inputs = new_inputs
            d_steps = new_steps
            new_carries = new_carries + (carry,)
            new_rates = new_rates + (d_rate,)
            sums = sums + (tl.permute(_together(new_sums, TILE), (1, 0)),)
        carries = new_carries
        d_rates = new_rates
        if PER == 16:
            sums = (_merged(sums[0], sums[1], 4), _merged(sums[2], sums[3], 4))
        if PER >= 8:
            sums = (_merged(sums[0], sums[1], PER // 2),)
        place = t + tl.arange(0, TILE)[:, None]
        at_sums = place * (2 * STATES) + at_summed[None, :]
        at_sums = tl.multiple_of(tl.max_contiguous(at_sums, [1, 2]), [1, 1])
        inside = (summed < STATES)[None, :] & (place < end)
        tl.store(d_weights + at_sums, tl.permute(sums[0], (1, 0)), inside)
        d_input = _over_groups(_together(d_inputs, TILE), PER)
        d_step = _over_groups(_together(d_steps, TILE), PER) * _LN2
        # u again: the sweeps leave no registers to keep it
        values = tl.load(u + at, real, 0.0, cache_modifier=".ca").to(tl.float32)
        there = there & (n == 0)[None, :]
        tl.store(d_u + at, d_input * all_steps, there)
        tl.store(d_delta + at, d_step + d_input * values, there)
    for i in tl.static_range(PER // 4):
        _keep(d_A + own, n, d, channels, d_rates[i], i, STATES)
        _keep(d_first + own, n, d, channels, carries[i], i, STATES)
