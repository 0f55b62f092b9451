"""Selective scan of Mamba (arXiv 2312.00752): a linear recurrence whose steps depend on the input.

h_t = exp(Δ_t A) h_(t-1) + Δ_t u_t B_t and y_t = C_t h_t, in float32 or float64. The backward pass
recomputes the states, tile by tile, from the states before each tile. So the states of all
positions are never stored. The scan is an operator of torch,
so that compiled networks hold it as a whole.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.extensions.dna.kernels.scan_kernels import scan_kernels_available
from unmask.extensions.dna.layers import scan_passes
from unmask.runtime.kernels.availability import constant_in_graphs


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
    kernels = u.is_cuda and dtype == torch.float32 and _kernels_run(A.shape[1])
    A = A.to(dtype).t().contiguous()
    if state is None:
        state = A.new_zeros(len(u), *A.shape)
    if u.shape[1] == 1:  # decoding: the recurrence itself takes fewer operations
        step, now = delta.to(dtype), u.to(dtype)
        state = (step * A).exp() * state + (step * now) * B.to(dtype).mT
        return (C.to(dtype) @ state).to(u.dtype), state
    y, last, _ = _scan(u, delta, A, B, C, state.to(dtype), chunks, kernels)
    return y, last


@constant_in_graphs  # a trace cannot launch the kernels that this tries
def _kernels_run(states: int) -> bool:
    return scan_kernels_available() and states <= _passes(True).MOST_STATES


@torch.library.custom_op(
    "unmask::selective_scan",
    mutates_args=(),
    schema="(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor state, int chunks,"
    " bool kernels) -> (Tensor, Tensor, Tensor)",
)
def _scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    state: Tensor,
    chunks: int,
    kernels: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, last states, and the states before each tile."""
    passes = _passes(kernels)
    chunks = chunks or passes.chosen_chunks(u, A)
    y, last, firsts = passes.forward(u, delta, A, B, C, state, chunks)
    return y.to(u.dtype).contiguous(), last.contiguous(), firsts


@_scan.register_fake
def _(u: Tensor, delta: Tensor, A: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
    chunks, passes = args[-2], _passes(args[-1])
    firsts = passes.firsts_shape(u, A, chunks or passes.chosen_chunks(u, A))
    return u.new_empty(u.shape), A.new_empty(u.shape[0], *A.shape), A.new_empty(firsts)


@torch.library.custom_op(
    "unmask::selective_scan_backward",
    mutates_args=(),
    schema="(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor firsts, Tensor d_y,"
    " Tensor d_last, int chunks, bool kernels) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _scan_backward(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    firsts: Tensor,
    d_y: Tensor,
    d_last: Tensor,
    chunks: int,
    kernels: bool,
) -> tuple[Tensor, ...]:
    """Gradients of u, Δ, A, B, C and of the states before the first position."""
    passes = _passes(kernels)
    chunks = chunks or passes.chosen_chunks(u, A)
    found = passes.backward(u, delta, A, B, C, firsts, d_y, d_last, chunks)
    likes = (u, delta, A, B, C, d_last)
    return tuple(d.to(x.dtype).contiguous() for d, x in zip(found, likes, strict=True))


@_scan_backward.register_fake
def _(*args: Any) -> tuple[Tensor, ...]:
    d_last = args[7]
    return tuple(part.new_empty(part.shape) for part in (*args[:5], d_last))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, _, ctx.chunks, ctx.kernels = inputs
    ctx.save_for_backward(*tensors, output[2])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # once: activation checkpointing allows no second read
    u, _, A, *_ = saved
    d_y = u.new_zeros(u.shape) if grads[0] is None else grads[0]
    d_last = A.new_zeros(u.shape[0], *A.shape) if grads[1] is None else grads[1]
    found = _scan_backward(*saved, d_y, d_last, ctx.chunks, ctx.kernels)
    return *found, None, None


# the gradient has no gradient: the states are saved without their graph
_scan.register_autograd(_backward, setup_context=_setup_context)


def _passes(kernels: bool) -> Any:
    """The module of both passes: Triton kernels or plain torch."""
    if not kernels:
        return scan_passes
    from unmask.extensions.dna.kernels import recurrence

    return recurrence
