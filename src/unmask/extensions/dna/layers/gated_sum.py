"""End of a Mamba block before its last projection: (Σ_i y_i + D_i x_i) silu(z)
over the directions i.

On a GPU with Triton, one kernel of each pass computes it. It is an operator of torch, so that
compiled networks hold it as a whole.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.extensions.dna.kernels.scan_kernels import block_kernels_available
from unmask.runtime.kernels.availability import constant_in_graphs

Rows = Float[Tensor, "rows length channels"]
Direction = tuple[Rows, Rows, Float[Tensor, "channels"]]


def gated_sum(z: Rows, directions: Sequence[Direction]) -> Rows:
    """The gated sum of one or two directions, in the precision of `z`.

    Args:
        z: Gates before silu.
        directions: Outputs y of the scan, its inputs x, and D, of each direction. The second
            direction has its positions in reverse order.

    Returns:
        The sum, in the order of the gates.

    Example:
        >>> x, D = torch.tensor([[[1.0], [2.0]]]), torch.ones(1)
        >>> gated_sum(10 * torch.ones(1, 2, 1), [(x, x, D), (x, x, 0 * D)]).round().flatten()
        tensor([40., 50.])
    """
    parts = [part for direction in directions for part in direction]
    floats = (torch.bfloat16, torch.float16, torch.float32)
    if z.is_cuda and all(part.dtype in floats for part in (z, *parts)) and _kernels_run():
        return _gated(z, parts)
    total, *others = (torch.addcmul(y, x, D) for y, x, D in directions)
    for other in others:
        total = total + other.flip(1)
    return (total * F.silu(z)).to(z.dtype)


@constant_in_graphs  # a trace cannot launch the kernels that this tries
def _kernels_run() -> bool:
    return block_kernels_available()


@torch.library.custom_op(
    "unmask::gated_sum", mutates_args=(), schema="(Tensor z, Tensor[] parts) -> Tensor"
)
def _gated(z: Tensor, parts: Sequence[Tensor]) -> Tensor:
    return _kernels().forward(z, parts)


@_gated.register_fake
def _(z: Tensor, parts: Sequence[Tensor]) -> Tensor:
    return z.new_empty(z.shape)


@torch.library.custom_op(
    "unmask::gated_sum_backward",
    mutates_args=(),
    schema="(Tensor d_out, Tensor z, Tensor[] parts) -> Tensor[]",
)
def _gated_backward(d_out: Tensor, z: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of z, and of y, x and D of each direction."""
    return _kernels().backward(d_out, z, parts)


@_gated_backward.register_fake
def _(d_out: Tensor, z: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (z, *parts)]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    z, parts = inputs
    ctx.save_for_backward(z, *parts)


def _backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, list[Tensor]]:
    z, *parts = ctx.saved_tensors
    d_z, *grads = _gated_backward(d_out, z, parts)
    return d_z, grads


# the gradient has no gradient
_gated.register_autograd(_backward, setup_context=_setup_context)


def _kernels() -> Any:
    from unmask.extensions.dna.kernels import gate

    return gate
