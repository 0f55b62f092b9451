"""The selective scan in plain torch: loops over positions, for all rows at once.

`unmask.extensions.dna.kernels.recurrence` has the same functions for GPUs. A row is split into chunks. A first
pass computes the last states of each chunk from states of zero. The chunks pass their states on, and a
second pass computes the outputs. Inside a pass, tensors are [positions, rows, states, channels], so
that one step reads contiguous memory.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

# states that one step computes in parallel: with fewer, a row is split into chunks
_CPU, _GPU = 1 << 13, 1 << 22
_FEWEST = 4  # with fewer chunks, the first pass costs more than it saves
_TILE = 16  # fewest positions of a tile
_TILE_STATES = {"cpu": 1 << 19, "cuda": 1 << 26}  # states of all positions of a tile

Rows = Float[Tensor, "rows length channels"]
Selected = Float[Tensor, "rows length states"]  # a value of each state at each position
States = Float[Tensor, "rows states channels"]
Rates = Float[Tensor, "states channels"]
Chunked = Float[Tensor, "parts states channels"]  # states of each chunk of each row
Firsts = Float[Tensor, "tiles parts states channels"]


def chosen_chunks(u: Rows, A: Rates) -> int:
    """The number of chunks of a row, at most the square root of its length."""
    chunks = min((_GPU if u.is_cuda else _CPU) // (u.shape[0] * A.numel()), math.isqrt(u.shape[1]))
    return chunks if chunks >= _FEWEST else 1


def firsts_shape(u: Rows, A: Rates, chunks: int) -> tuple[int, ...]:
    """Shape of the states before each tile, which the backward pass needs."""
    size, parts = -(-u.shape[1] // chunks), u.shape[0] * chunks
    return (-(-size // _tile(u, A, chunks)), parts, *A.shape)


def forward(
    u: Rows, delta: Rows, A: Rates, B: Selected, C: Selected, state: States, chunks: int
) -> tuple[Rows, States, Firsts]:
    """Outputs, states after the last position, and states before each tile."""
    tile, first = _tile(u, A, chunks), state
    u_c, delta_c, B_c, C_c = (_split(part, chunks) for part in (u, delta, B, C))
    if chunks > 1:
        lasts = last_state(u_c, delta_c, A, B_c, tile)
        first, last = _pass_on(lasts, _decays(delta_c, A), state, chunks)
    y, lasts, firsts = scan(u_c, delta_c, A, B_c, C_c, first, tile)
    return _join(y, u), last if chunks > 1 else lasts, firsts


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
    tile = _tile(u, A, chunks)
    u_c, delta_c, B_c, C_c, d_y = (_split(part, chunks) for part in (u, delta, B, C, d_y))
    if chunks > 1:
        d_firsts = first_gradient(delta_c, A, C_c, d_y, tile)
        decays = _decays(delta_c, A)
        d_last, d_state = _pass_on(d_firsts, decays, d_last, chunks, backwards=True)
    d_u, d_delta, d_A, d_B, d_C, d_firsts = gradients(
        u_c, delta_c, A, B_c, C_c, firsts, d_y, d_last, tile
    )
    d_u, d_delta, d_B, d_C = (_join(part, u) for part in (d_u, d_delta, d_B, d_C))
    return d_u, d_delta, d_A, d_B, d_C, d_state if chunks > 1 else d_firsts


def last_state(u: Rows, delta: Rows, A: Rates, B: Selected, tile: int) -> States:
    """The states after the last position, from states of zero."""
    state = A.new_zeros(len(u), *A.shape)
    for part in _tiles(u, tile):
        u_t, delta_t, B_t = _by_time(part, A, u, delta, B)
        state = _states(u_t, delta_t, B_t, A, state)[1][-1].clone()
    return state


def scan(
    u: Rows, delta: Rows, A: Rates, B: Selected, C: Selected, first: States, tile: int
) -> tuple[Rows, States, Float[Tensor, "tiles rows states channels"]]:
    """Outputs, states after the last position, and states before each tile."""
    y = torch.empty_like(u, dtype=A.dtype)
    firsts, state = [], first
    for part in _tiles(u, tile):
        firsts.append(state)
        u_t, delta_t, B_t, C_t = _by_time(part, A, u, delta, B, C)
        _, states = _states(u_t, delta_t, B_t, A, state)
        state = states[-1].clone()
        y[:, part] = (C_t[:, :, None] @ states[1:])[:, :, 0].transpose(0, 1)
    return y, state, torch.stack(firsts)


def first_gradient(delta: Rows, A: Rates, C: Selected, d_y: Rows, tile: int) -> States:
    """The gradient of the states before the first position, from that of the outputs alone."""
    carry = A.new_zeros(len(delta), *A.shape)
    for part in reversed(_tiles(delta, tile)):
        delta_t, C_t, d_y_t = _by_time(part, A, delta, C, d_y)
        decay = (delta_t[:, :, None] * A).exp_()
        carry = _state_gradients(decay, C_t, d_y_t, carry)[0] * decay[0]
    return carry


def gradients(
    u: Rows,
    delta: Rows,
    A: Rates,
    B: Selected,
    C: Selected,
    firsts: Float[Tensor, "tiles rows states channels"],
    d_y: Rows,
    d_last: States,
    tile: int,
) -> tuple[Rows, Rows, Rates, Selected, Selected, States]:
    """Gradients of u, Δ, A, B, C and of the states before the first position."""
    d_u, d_delta, d_B, d_C = (torch.empty_like(x, dtype=A.dtype) for x in (u, delta, B, C))
    d_A, carry = torch.zeros_like(A), d_last
    for part, first in zip(reversed(_tiles(u, tile)), reversed(firsts.unbind()), strict=True):
        u_t, delta_t, B_t, C_t, d_y_t = _by_time(part, A, u, delta, B, C, d_y)
        decay, states = _states(u_t, delta_t, B_t, A, first)
        d_states = _state_gradients(decay, C_t, d_y_t, carry)
        carry = d_states[0] * decay[0]
        d_input = (B_t[:, :, None] @ d_states)[:, :, 0]  # of Δ u
        d_exponent = decay.mul_(states[:-1]).mul_(d_states)  # of Δ A
        d_u[:, part] = (d_input * delta_t).transpose(0, 1)
        d_delta[:, part] = ((d_exponent * A).sum(2) + d_input * u_t).transpose(0, 1)
        d_A += d_exponent.mul_(delta_t[:, :, None]).sum((0, 1))
        d_B[:, part] = (d_states @ (delta_t * u_t)[..., None])[..., 0].transpose(0, 1)
        d_C[:, part] = (states[1:] @ d_y_t[..., None])[..., 0].transpose(0, 1)
    return d_u, d_delta, d_A, d_B, d_C, carry


def _tiles(x: Rows, tile: int) -> list[slice]:
    length = x.shape[1]
    return [slice(start, min(start + tile, length)) for start in range(0, length, tile)]


def _by_time(part: slice, A: Rates, *tensors: Tensor) -> list[Tensor]:
    """Some positions of tensors, in the precision of A, with the position as the first axis."""
    return [x[:, part].transpose(0, 1).to(A.dtype).contiguous() for x in tensors]


def _states(u: Tensor, delta: Tensor, B: Tensor, A: Rates, first: States) -> tuple[Tensor, Tensor]:
    """Decay at each position of a tile, and states before the first and after each position."""
    decay = (delta[:, :, None] * A).exp_()
    states = A.new_empty(len(u) + 1, *first.shape)
    states[0] = first
    torch.mul(B[..., None], (delta * u)[:, :, None], out=states[1:])
    state, *later = states.unbind()
    for factor, added in zip(decay.unbind(), later, strict=True):
        state = added.addcmul_(factor, state)
    return decay, states


def _state_gradients(decay: Tensor, C: Tensor, d_y: Tensor, carry: States) -> Tensor:
    """Gradients of the states after each position of a tile; `carry` comes from later tiles."""
    d_states = C[..., None] * d_y[:, :, None]
    *earlier, after = d_states.unbind()
    after += carry
    for factor, read in zip(reversed(decay.unbind()[1:]), reversed(earlier), strict=True):
        after = read.addcmul_(factor, after)
    return d_states


def _pass_on(
    own: Chunked, decays: Chunked, state: States, chunks: int, backwards: bool = False
) -> tuple[Chunked, States]:
    """The states that each chunk receives, and those that leave the last one.

    Args:
        own: The states that leave each chunk if it receives zero.
        decays: The factor of the received states in those that leave.
        state: The states that the first chunk receives.
        chunks: Number of chunks of a row.
        backwards: True for gradients, which the last chunk receives first.

    Returns:
        The states that each chunk receives, and those that leave at the end.
    """
    order = range(chunks)[::-1] if backwards else range(chunks)
    own, decays = (part.unflatten(0, (-1, chunks)) for part in (own, decays))
    received = torch.empty_like(own)
    for chunk in order:
        received[:, chunk] = state
        state = torch.addcmul(own[:, chunk], decays[:, chunk], state)
    return received.flatten(0, 1), state


def _decays(delta: Rows, A: Rates) -> States:
    """The factor of the first states in the last states."""
    return (delta.to(A.dtype).sum(1)[:, None] * A).exp_()


def _split(x: Tensor, chunks: int) -> Tensor:
    """The chunks as rows. Positions after the end have Δ = 0."""
    if chunks == 1:
        return x.contiguous()
    size = -(-x.shape[1] // chunks)
    return F.pad(x, (0, 0, 0, size * chunks - x.shape[1])).reshape(-1, size, x.shape[2])


def _join(x: Tensor, u: Rows) -> Tensor:
    """The inverse of `_split`, for the rows of u."""
    return x.reshape(len(u), -1, x.shape[2])[:, : u.shape[1]]


def _tile(u: Rows, A: Rates, chunks: int) -> int:
    """Positions of a tile, whose states are in memory together."""
    most = _TILE_STATES.get(u.device.type, 1 << 19) // (u.shape[0] * chunks * A.numel())
    return max(_TILE, min(most, math.isqrt(-(-u.shape[1] // chunks))))
