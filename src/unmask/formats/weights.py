"""Builds a method from a configuration and stored weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from unmask.config.components import build_method, outline
from unmask.config.run_config import RunConfig
from unmask.files.tensors import check_finite, check_fit
from unmask.methods.method import Method
from unmask.vocabulary import Vocabulary


class _Unfilled(TorchFunctionMode):
    """Skips the initialisation of parameters, since stored weights replace them."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        target = args[0] if args else kwargs.get("tensor")
        fills = func.__name__.endswith("_") and not func.__name__.startswith("_")
        if fills and func.__name__ != "requires_grad_" and isinstance(target, nn.Parameter):
            return target
        return func(*args, **kwargs)


def restored(
    config: RunConfig,
    vocabulary: Vocabulary,
    tensors: Mapping[str, Tensor],
    where: Path,
    dtype: torch.dtype = torch.float32,
) -> Method:
    """The method of a configuration with stored weights.

    Raises an error if the weights do not fit the network in `dtype` or are not finite.
    """
    with _Unfilled():
        # a file may claim a network larger than the memory: check its outline first
        check_fit(tensors, stored(outline(config, vocabulary).state_dict(), dtype), where)
        check_finite(tensors, where)
        method = build_method(config, vocabulary)
    method.load_state_dict(tensors)
    return method


def stored(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights in the dtype of a file. Tensors that are not fp32 stay unchanged."""
    return {
        name: tensor.to(dtype) if tensor.dtype == torch.float32 else tensor
        for name, tensor in tensors.items()
    }
