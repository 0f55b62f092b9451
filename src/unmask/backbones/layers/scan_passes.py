"""Passes of the selective scan in plain torch: loops over positions, for all rows at once.

`unmask.runtime.kernels.recurrence` has the same functions for GPUs. Inside, tensors are [positions,
rows, states, channels], so that one step reads contiguous memory.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Rows = Float[Tensor, "rows length channels"]
Selected = Float[Tensor, "rows length states"]  # a value of each state at each position
States = Float[Tensor, "rows states channels"]
Rates = Float[Tensor, "states channels"]


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
        d_A += torch.einsum("trnd,trd->nd", d_exponent, delta_t)
        d_u[:, part] = (d_input * delta_t).transpose(0, 1)
        d_delta[:, part] = (d_exponent.mul_(A).sum(2) + d_input * u_t).transpose(0, 1)
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
