"""Weights as 8-bit integers with one scale per row: a quarter of the size of fp32, half of bf16."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unmask.errors import UnmaskError

SCALE = "_scale"  # the scales of the matrix NAME are the tensor NAME_scale, fp32 [rows]
_LARGEST = 127


def quantize(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as int8 with their scales, and other fp32 tensors in bf16.

    An entry changes by at most 1/254 of the largest entry of its row. Biases and the gains of norms are
    few, so that 8 bits would save little.

    Args:
        tensors: Weights by name.

    Returns:
        The tensors to store. `expand` restores the weights from them.
    """
    stored = {}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.float32 and tensor.ndim == 2:
            scale = tensor.abs().amax(1) / _LARGEST
            steps = tensor / scale.clamp(min=torch.finfo(scale.dtype).tiny)[:, None]
            stored[name] = steps.round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
            stored[name + SCALE] = scale
        else:
            stored[name] = tensor.bfloat16() if tensor.dtype == torch.float32 else tensor
    return stored


def expand(tensors: Mapping[str, Tensor], where: Path | str) -> dict[str, Tensor]:
    """The weights that `quantize` stored, in fp32; an error if a scale does not fit its matrix."""
    weights, scales = {}, {name + SCALE for name in tensors}
    for name, tensor in tensors.items():
        if name in scales:
            continue
        scale = tensors.get(name + SCALE)
        if scale is None:
            weights[name] = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
            continue
        kinds = tensor.dtype, scale.dtype, scale.shape
        if kinds != (torch.int8, torch.float32, tensor.shape[:1]):
            raise UnmaskError(
                f"{where} does not fit: {name}{SCALE} must hold one fp32 number per row of an int8 matrix; "
                "export the model again"
            )
        weights[name] = tensor * scale[:, None]
    return weights
