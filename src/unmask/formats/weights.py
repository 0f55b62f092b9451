"""From a configuration to its components."""

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
    """Parameters get no first values, which what is in a file replaces: to draw them takes its time."""

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
    """The method with its network and these weights, of the size that it asks for, as stored in `dtype`."""
    with _Unfilled():
        # a file may ask for more than there is memory: first without any
        check_fit(tensors, stored(outline(config, vocabulary).state_dict(), dtype), where)
        check_finite(tensors, where)
        method = build_method(config, vocabulary)
    method.load_state_dict(tensors)
    return method


def stored(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights as a file holds them; what is not in fp32 stays as it is."""
    return {
        name: tensor.to(dtype) if tensor.dtype == torch.float32 else tensor
        for name, tensor in tensors.items()
    }
