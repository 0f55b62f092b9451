"""Stored weights, restored into the method of a configuration."""

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

_TABLE, _HEAD = "backbone.embedding.weight", "backbone.head.weight"


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
    table, tied = tensors.get(_TABLE), _tied(config)
    if tied and table is not None:
        tensors = {_HEAD: table, **tensors}
    with _SkipInitialisation():
        # the network may be larger than the memory: compare with an outline without data first
        check_fit(tensors, in_dtype(outline(config, vocabulary).state_dict(), dtype), where)
        check_finite(tensors, where)
        method = build_method(config, vocabulary)
    method.load_state_dict(tensors, assign=taken)
    if taken and tied:
        method.backbone.head.weight = method.backbone.embedding.weight  # type: ignore[assignment]
    return method


def without_tied_head(config: RunConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights with a matrix that is embedding and head stored once; `restored` reads them."""
    weights = dict(tensors)
    if _tied(config) and {_TABLE, _HEAD} <= weights.keys():
        head = weights.pop(_HEAD)
        if head.data_ptr() != weights[_TABLE].data_ptr():  # such as the head of a classifier
            weights[_HEAD] = head
    return weights


def _tied(config: RunConfig) -> bool:
    """True if the head has the matrix of the embedding."""
    return bool(getattr(config.backbone.config, "tied_head", False))


def in_dtype(
    tensors: Mapping[str, Tensor], dtype: torch.dtype, given: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """The tensors with those of dtype `given` converted to `dtype`; others stay unchanged."""
    return {
        name: tensor.to(dtype) if tensor.dtype == given else tensor
        for name, tensor in tensors.items()
    }
