"""Stored weights: as 8-bit integers, and restored into the method of a configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from unmask.config.components import build_method, outline
from unmask.config.run_config import RunConfig
from unmask.errors import UnmaskError
from unmask.files.tensors import check_finite, check_fit
from unmask.methods.method import Method
from unmask.vocabulary import Vocabulary


class _SkipInitialisation(TorchFunctionMode):
    """Skips the in-place initialisation of parameters, which stored weights replace."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        target = args[0] if args else kwargs.get("tensor")
        in_place = func.__name__.endswith("_") and not func.__name__.startswith("_")
        if in_place and func.__name__ != "requires_grad_" and isinstance(target, nn.Parameter):
            return target
        return func(*args, **kwargs)


def restored(
    config: RunConfig,
    vocabulary: Vocabulary,
    tensors: Mapping[str, Tensor],
    where: Path,
    dtype: torch.dtype = torch.float32,
    taken: bool = False,
) -> Method:
    """The method of a configuration with stored weights.

    Raises an error if the weights do not fit the network in `dtype` or are not finite. With `taken`,
    the network takes fp32 tensors as they are, so that memory holds them once.
    """
    table = tensors.get("backbone.embedding.weight")
    tied = getattr(config.backbone.config, "tied_head", False)
    if tied and table is not None:
        tensors = {
            "backbone.head.weight": table,
            **tensors,
        }  # transformers writes a tied matrix once
    with _SkipInitialisation():
        # the network may be larger than the memory: compare with an outline without data first
        check_fit(tensors, in_dtype(outline(config, vocabulary).state_dict(), dtype), where)
        check_finite(tensors, where)
        method = build_method(config, vocabulary)
    method.load_state_dict(tensors, assign=taken)
    if taken and tied:
        method.backbone.head.weight = method.backbone.embedding.weight  # type: ignore[assignment]
    return method


def in_dtype(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors with fp32 converted to `dtype`; other tensors stay unchanged."""
    return {
        name: tensor.to(dtype) if tensor.dtype == torch.float32 else tensor
        for name, tensor in tensors.items()
    }


SCALE = "_scale"  # the scales of the matrix NAME are the tensor NAME_scale, fp32 [rows]
_LARGEST = 127


def quantize(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as int8 with their scales, and other fp32 tensors in bf16.

    An entry changes by at most 1/254 of the largest entry of its row. Biases and the gains of norms
    are few, so that 8 bits would save little.

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
