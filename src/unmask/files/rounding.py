"""Stored weights as integers of 8 or of 4 bits, and back."""

from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.errors import UnmaskError

SCALE = "_scale"  # the scales of the matrix NAME are the tensor NAME_scale
GROUP = 32  # weights of 4 bits that share a scale, along the input
INTEGERS = ("int8", "int4")
_LARGEST = 127
_TINY = torch.finfo(torch.float32).tiny
_CLIPPED = torch.linspace(1, 0.6, 9)  # tried shares of the scale that clips no weight of a group
_DAMPING = 0.01  # share of the mean square of the inputs


def quantize(
    tensors: Mapping[str, Tensor],
    precision: str = "int8",
    products: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Matrices as integers with their scales, and other fp32 tensors in bf16.

    int8 has an fp32 scale for each row, so that an entry changes by at most 1/254 of the largest of its
    row. int4 packs two weights to a byte, and has an fp16 scale for each 32 weights of a row. A matrix
    whose rows are no multiple of 32 is stored in int8. Biases and the gains of norms are few, so that
    fewer bits would save little.

    Args:
        tensors: Weights by name.
        precision: int8 or int4.
        products: X^T X of the inputs X of matrices, by name. The rounding of these matrices to 4 bits
            minimises the error of their outputs (arXiv 2210.17323), and that of others the error of
            the weights.

    Returns:
        The tensors to store. `expand` restores the weights from them.
    """
    stored = {}
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or tensor.ndim != 2:
            stored[name] = tensor.bfloat16() if tensor.dtype == torch.float32 else tensor
        elif precision == "int4" and tensor.shape[1] % GROUP == 0:
            steps, scale = _nibbles(tensor, (products or {}).get(name))
            low, high = (steps + 8).to(torch.uint8).unflatten(1, (-1, 2)).unbind(2)
            stored[name], stored[name + SCALE] = low | high << 4, scale
        else:
            scale = tensor.abs().amax(1) / _LARGEST
            steps = (tensor / scale.clamp(min=_TINY)[:, None]).round()
            stored[name] = steps.clamp(-_LARGEST, _LARGEST).to(torch.int8)
            stored[name + SCALE] = scale
    return stored


def rounded(weight: Tensor) -> Tensor | None:
    """A matrix as int4 stores it without products; None for a tensor that has no 4 bits there."""
    if weight.ndim != 2 or weight.shape[1] % GROUP:
        return None
    groups, scale = _nearest(weight)
    return (_steps(groups, scale) * scale).view_as(weight)


def expand(tensors: Mapping[str, Tensor], where: Path | str) -> dict[str, Tensor]:
    """The weights that `quantize` stored, in fp32; an error if a scale does not fit its matrix."""
    weights, scales = {}, {name + SCALE for name in tensors}
    for name, tensor in tensors.items():
        if name in scales:
            continue
        scale = tensors.get(name + SCALE)
        if scale is None:
            weights[name] = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        elif tensor.dtype == torch.int8:
            _check(scale.dtype == torch.float32 and scale.shape == tensor.shape[:1], name, where)
            weights[name] = tensor * scale[:, None]
        else:
            fits = tensor.dtype == torch.uint8 and scale.dtype == torch.float16
            fits = fits and tensor.ndim == 2 and scale.shape[:1] == tensor.shape[:1]
            groups = len(tensor), tensor.shape[-1] * 2 // GROUP
            _check(fits and scale.shape == groups, name, where)
            steps = torch.stack((tensor & 15, tensor >> 4), -1).view(*groups, GROUP)
            weights[name] = ((steps.float() - 8) * scale.float()[..., None]).flatten(1)
    return weights


def _check(fits: bool, name: str, where: Path | str) -> None:
    if not fits:
        raise UnmaskError(
            f"{where} does not fit: {name}{SCALE} must hold one fp32 number per row of an int8 matrix, "
            f"or one fp16 number per {GROUP} weights of 4 bits; export the model again"
        )


def _nibbles(
    weight: Float[Tensor, "rows columns"], product: Float[Tensor, "columns columns"] | None
) -> tuple[Int[Tensor, "rows columns"], Float[Tensor, "rows groups"]]:
    """Steps from -8 to 7 and fp16 scales. With a product, each column's error is made up for by the
    columns after it, as far as the inputs are correlated (GPTQ)."""
    if product is None:
        groups, scale = _nearest(weight)
        return _steps(groups, scale).view(weight.shape), scale.view(len(weight), -1).half()
    product = product.double()
    square = product.diagonal().mean().clamp(min=_TINY) * _DAMPING
    product = product + square * torch.eye(len(product), dtype=torch.float64)
    # row i: how the error of input i is made up for by the inputs after it
    factor = torch.linalg.cholesky(torch.linalg.inv(product), upper=True).float()
    left, steps, scales = weight.clone(), torch.empty_like(weight), []
    for start in range(0, weight.shape[1], GROUP):
        end = start + GROUP
        part = left[:, start:end]
        scale = _best_scale(part, product.diagonal()[start:end].float())
        errors = torch.empty_like(part)
        for i, column in enumerate(range(start, end)):
            chosen = _steps(part[:, i : i + 1], scale)
            steps[:, column] = chosen[:, 0]
            error = (part[:, i : i + 1] - chosen * scale) / factor[column, column]
            part[:, i:] -= error * factor[column, column:end]
            errors[:, i : i + 1] = error
        left[:, end:] -= errors @ factor[start:end, end:]
        scales.append(scale)
    return steps, torch.cat(scales, 1).half()


def _nearest(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The groups of a matrix, and the scale of each with the least error of the weights."""
    groups = weight.reshape(-1, GROUP)
    return groups, _best_scale(groups, torch.ones(GROUP, device=weight.device))


def _steps(weight: Tensor, scale: Tensor) -> Tensor:
    return (weight / torch.where(scale == 0, 1, scale)).round().clamp(-8, 7)


def _best_scale(
    groups: Float[Tensor, "groups size"], squares: Float[Tensor, "size"]
) -> Float[Tensor, "groups 1"]:
    """The scale of each group with the least squared error, weighted by the mean squares of the inputs.

    It is representable in fp16. Among the tried ones are those of weights that are already rounded.
    """
    largest = groups.gather(1, groups.abs().argmax(1, keepdim=True))
    best, least = torch.zeros_like(largest), torch.full_like(largest, torch.inf)
    for divisor in (*(-8 / _CLIPPED).tolist(), -7.0, 7.0):
        scale = (largest / divisor).half().float()
        error = ((_steps(groups, scale) * scale - groups).square() * squares).sum(1, keepdim=True)
        best, least = torch.where(error < least, scale, best), torch.minimum(error, least)
    return best
