"""Short causal convolution b + Σ_k w_k u_(t-k) of each channel, with silu in Mamba,
without in Hyena.

On a GPU with Triton, one kernel of each pass computes it. It is an operator of torch, so that
compiled networks hold it as a whole.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.extensions.dna.kernels.scan_kernels import block_kernels_available
from unmask.runtime.kernels.availability import constant_in_graphs


def short_convolution(
    u: Float[Tensor, "rows length channels"],
    weight: Float[Tensor, "channels width"],
    bias: Float[Tensor, "channels"],
    start: int = 0,
    flipped: bool = False,
    silu: bool = True,
) -> Float[Tensor, "rows outputs channels"]:
    """Outputs from the position `start` on, in the precision of `u`.
    Inputs before the row are zero.

    Args:
        u: Inputs.
        weight: Weights of each channel, that of the current input last.
        bias: Bias of each channel.
        start: Number of first inputs without an output, less than the number of weights.
        flipped: Reads each row from its last position to its first.
        silu: Applies silu to the sums.

    Returns:
        The outputs, in the order in which the inputs are read.

    Example:
        >>> u, one = torch.tensor([[[0.0], [3.0], [0.0]]]), torch.ones(1)
        >>> short_convolution(u, torch.tensor([[1.0, 0.0]]), one).flatten()
        tensor([0.7311, 0.7311, 3.9281])
    """
    half = u.dtype in (torch.bfloat16, torch.float16)
    if u.is_cuda and (half or u.dtype == torch.float32) and _kernels_run(weight.shape[1]):
        return _convolution(u, weight, bias, start, flipped, silu)
    kept, length = weight.shape[1] - 1, u.shape[1] - start
    padded = F.pad(u.flip(1) if flipped else u, (0, 0, kept - start, 0))
    y: Any = bias
    for shift in range(kept + 1):  # on a CPU twice as fast as torch's convolution
        y = torch.addcmul(y, padded[:, shift : shift + length], weight[:, shift])
    return (F.silu(y) if silu else y).to(u.dtype)


@constant_in_graphs  # a trace cannot launch the kernels that this tries
def _kernels_run(width: int) -> bool:
    return block_kernels_available() and width <= _kernels().MOST


@torch.library.custom_op(
    "unmask::short_convolution",
    mutates_args=(),
    schema="(Tensor u, Tensor weight, Tensor bias, int start, bool flipped, bool silu) -> Tensor",
)
def _convolution(
    u: Tensor, weight: Tensor, bias: Tensor, start: int, flipped: bool, silu: bool
) -> Tensor:
    return _kernels().forward(u, weight, bias, start, flipped, silu)


@_convolution.register_fake
def _(u: Tensor, weight: Tensor, bias: Tensor, start: int, *_: bool) -> Tensor:
    return u.new_empty(u.shape[0], u.shape[1] - start, u.shape[2])


@torch.library.custom_op(
    "unmask::short_convolution_backward",
    mutates_args=(),
    schema="(Tensor u, Tensor weight, Tensor bias, Tensor d_y, int start, bool flipped,"
    " bool silu) -> (Tensor, Tensor, Tensor)",
)
def _convolution_backward(
    u: Tensor, weight: Tensor, bias: Tensor, d_y: Tensor, start: int, flipped: bool, silu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the inputs, weights and biases."""
    d_u, d_weight, d_bias = _kernels().backward(u, weight, bias, d_y, start, flipped, silu)
    return d_u, d_weight.to(weight.dtype), d_bias.to(bias.dtype)


@_convolution_backward.register_fake
def _(*args: Any) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in args[:3])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.options = inputs[3:]


def _backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
    found = _convolution_backward(*ctx.saved_tensors, d_y, *ctx.options)
    return *found, None, None, None


# the gradient has no gradient
_convolution.register_autograd(_backward, setup_context=_setup_context)


def _kernels() -> Any:
    from unmask.extensions.dna.kernels import convolution

    return convolution
