"""Tensors of a loss at chosen tokens, with numbers of tokens that are few enough for CUDA graphs."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from unmask.methods.method import Method
from unmask.shapes import Batch, Tokens, Valid

COUNTS = 32  # numbers of tokens that `chosen_first` rounds up to


def token_tensors(
    method: Method,
    batch: Batch,
    z_t: Tokens,
    chosen: Valid,
    inputs: Sequence[Float64[Tensor, "rows *length"]],
    sigma: Tensor | None,
) -> dict[str, Tensor]:
    """Inputs of `loss_of` for a loss at chosen tokens.

    Args:
        method: The method of the loss.
        batch: The rows.
        z_t: Token ids with noise, which the network reads.
        chosen: True at the tokens of the loss.
        inputs: Inputs of the loss by row or by token, the weight first. It is 0 at the tokens that
            fill up.
        sigma: Noise levels; None for a network without time conditioning.

    Returns:
        Tensors by name, on the CPU.
    """
    at, count = chosen_first(chosen, method.few_shapes)
    wide = method.backbone.head.weight.dtype == torch.float64
    dtype = torch.float64 if wide else torch.float32
    each = [value if value.ndim == 2 else value[:, None].expand(z_t.shape) for value in inputs]
    by_token = torch.stack([value.detach().to(dtype).flatten()[at] for value in each])
    by_token[0, count:] = 0.0
    if batch.weight is not None:
        by_token[0] *= batch.weight.flatten()[at]
    tensors = {"x": batch.x, "z_t": z_t, "at": at, "by_token": by_token}
    optional = {"sigma": sigma, "valid": batch.padding}
    return tensors | {name: value for name, value in optional.items() if value is not None}


def chosen_first(chosen: Valid, few: bool = True) -> tuple[Int[Tensor, "tokens"], int]:
    """Indices of the chosen tokens, then of some others, so that few different numbers occur.

    Args:
        chosen: True at chosen tokens.
        few: False for no others.

    Returns:
        Distinct indices into the flattened batch, and the number of chosen tokens among them.

    Example:
        >>> chosen_first(torch.tensor([[False, True], [True, False]]))
        (tensor([1, 2]), 2)
    """
    flat = chosen.flatten()
    at = flat.nonzero()[:, 0]
    if not few:
        return at, len(at)
    count, step = len(at), max(1, len(flat) // COUNTS)
    missing = max(1, -(-count // step)) * step - count
    others = (~flat).nonzero()[:missing, 0]
    return torch.cat([at, others]), count


def spread(
    values: Float[Tensor, "tokens"], at: Int[Tensor, "tokens"], like: Tokens
) -> Float[Tensor, "rows length"]:
    """Values of some tokens in the shape of the batch, with zeros elsewhere."""
    return values.new_zeros(like.numel()).index_copy(0, at, values).view(like.shape)
