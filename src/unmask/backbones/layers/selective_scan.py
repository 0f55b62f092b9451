"""Selective scan of Mamba (arXiv 2312.00752): a linear recurrence whose steps depend on the input.

h_t = exp(Δ_t A) h_(t-1) + Δ_t u_t B_t and y_t = C_t h_t, in float32 or float64. A row is split into
chunks. A first pass computes the last states of each chunk from states of zero. The chunks pass
their states on, and a second pass computes the outputs. The backward pass recomputes the states,
tile by tile, from the states before each tile. So the states of all positions are never stored.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from unmask.backbones.layers import scan_passes
from unmask.backbones.layers.scan_passes import Rates, Rows, Selected, States
from unmask.runtime.kernels.availability import scan_kernels_available

# states that one step computes in parallel: with fewer, a row is split into chunks
_CPU, _GPU, _KERNELS = 1 << 13, 1 << 22, 1 << 19
_FEWEST = 4  # with fewer chunks, the first pass costs more than it saves
_TILE = 16  # fewest positions of a tile
_TILE_STATES = {"cpu": 1 << 19, "cuda": 1 << 26}  # states of all positions of a tile


Chunked = Float[Tensor, "parts states channels"]  # states of each chunk of each row


@torch.compiler.disable  # a trace would unroll the loop over positions
def selective_scan(
    u: Float[Tensor, "rows length channels"],
    delta: Float[Tensor, "rows length channels"],
    A: Float[Tensor, "channels states"],
    B: Float[Tensor, "rows length states"],
    C: Float[Tensor, "rows length states"],
    state: Float[Tensor, "rows states channels"] | None = None,
    chunks: int = 0,
) -> tuple[Float[Tensor, "rows length channels"], Float[Tensor, "rows states channels"]]:
    """Outputs of the recurrence, and its states after the last position.

    A position with Δ = 0 leaves the states unchanged. On a GPU with Triton, kernels compute it.

    Args:
        u: Inputs.
        delta: Step sizes Δ, not negative.
        A: Decay rates, negative.
        B: Input weights of each position.
        C: Output weights of each position.
        state: States before the first position; zero by default.
        chunks: Number of chunks of a row; 0 chooses by device and shape.

    Returns:
        The outputs in the precision of `u`, and the last states.

    Example:
        >>> one = torch.ones(1, 3, 1)
        >>> selective_scan(one, one, -one[0, :1], one, one)[0].flatten()
        tensor([1.0000, 1.3679, 1.5032])
    """
    dtype = torch.promote_types(torch.promote_types(u.dtype, delta.dtype), torch.float32)
    kernels = u.is_cuda and dtype == torch.float32 and scan_kernels_available()
    A = A.to(dtype).t().contiguous()
    if state is None:
        state = A.new_zeros(len(u), *A.shape)
    return _Scan.apply(u, delta, A, B, C, state.to(dtype), chunks, kernels)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Rows,
        delta: Rows,
        A: Rates,
        B: Selected,
        C: Selected,
        state: States,
        chunks: int,
        kernels: bool,
    ) -> tuple[Rows, States]:
        passes = _passes(kernels)
        chunks = chunks or _chunks(u, A, kernels)
        rows, length = u.shape[:2]
        inputs = [_split(part, chunks) for part in (u, delta, B, C)]
        u_c, delta_c, B_c, C_c = inputs
        tile, first = _tile(u_c, A), state
        if chunks > 1:
            lasts = passes.last_state(u_c, delta_c, A, B_c, tile)
            first, last = _pass_on(lasts, _decays(delta_c, A), state, chunks)
        y, lasts, firsts = passes.scan(u_c, delta_c, A, B_c, C_c, first, tile)
        ctx.save_for_backward(u, delta, A, B, C, firsts)
        ctx.chunks, ctx.tile, ctx.kernels = chunks, tile, kernels
        return _join(y, rows, length).to(u.dtype), last if chunks > 1 else lasts

    @staticmethod
    @once_differentiable  # the states are saved without their graph
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        u, delta, A, B, C, firsts = ctx.saved_tensors
        passes, chunks, tile = _passes(ctx.kernels), ctx.chunks, ctx.tile
        rows, length = u.shape[:2]
        inputs = [_split(part, chunks) for part in (u, delta, B, C, grads[0])]
        u_c, delta_c, B_c, C_c, d_y = inputs
        d_last = grads[1]
        if chunks > 1:
            d_firsts = passes.first_gradient(delta_c, A, C_c, d_y, tile)
            decays = _decays(delta_c, A)
            d_last, d_state = _pass_on(d_firsts, decays, d_last, chunks, backwards=True)
        d_u, d_delta, d_A, d_B, d_C, d_firsts = passes.gradients(
            u_c, delta_c, A, B_c, C_c, firsts, d_y, d_last, tile
        )
        if chunks == 1:
            d_state = d_firsts
        d_u, d_delta, d_B, d_C = (
            _join(part, rows, length).to(like.dtype)
            for part, like in ((d_u, u), (d_delta, delta), (d_B, B), (d_C, C))
        )
        return d_u, d_delta, d_A, d_B, d_C, d_state, None, None


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


def _join(x: Tensor, rows: int, length: int) -> Tensor:
    """The inverse of `_split`."""
    return x.reshape(rows, -1, x.shape[2])[:, :length]


def _chunks(u: Rows, A: Rates, kernels: bool) -> int:
    """The number of chunks of a row, at most the square root of its length."""
    wanted = _KERNELS if kernels else _GPU if u.is_cuda else _CPU
    chunks = min(wanted // (len(u) * A.numel()), math.isqrt(u.shape[1]))
    return chunks if chunks >= _FEWEST else 1


def _tile(u: Rows, A: Rates) -> int:
    """Positions of a tile, whose states are in memory together."""
    most = _TILE_STATES.get(u.device.type, 1 << 19) // (len(u) * A.numel())
    return max(_TILE, min(most, math.isqrt(u.shape[1])))


def _passes(kernels: bool) -> Any:
    """The module of the passes: Triton kernels or plain torch."""
    if not kernels:
        return scan_passes
    from unmask.runtime.kernels import recurrence

    return recurrence
