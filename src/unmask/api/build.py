"""From a configuration to its components."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from unmask.backbones import BACKBONES
from unmask.config import Choice, RunConfig
from unmask.diffusion import SCHEDULES, TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.methods import METHODS, Method
from unmask.registry import Registry
from unmask.training import check_finite, check_fit
from unmask.vocabulary import Vocabulary


def build_method(config: RunConfig, vocabulary: Vocabulary) -> Method:
    """The method with its network, untrained."""
    kind: Any = METHODS[config.method.name]
    network: Any = BACKBONES[config.backbone.name]
    causal = kind.order == "left_to_right"
    if network.causal != causal:
        suitable = [name for name in BACKBONES if BACKBONES[name].causal == causal]
        raise UnmaskError(
            f"method {config.method.name} needs a {'causal' if causal else 'bidirectional'} network, "
            f"and {config.backbone.name} is not: set backbone {' or '.join(suitable)}"
        )
    if config.data.paired and not config.data.fill_target and not causal:
        raise UnmaskError(
            f"method {config.method.name} would be shown where targets end: set data.fill_target true"
        )
    backbone = network(config.backbone.config, vocabulary.size)
    schedule = _component(SCHEDULES, config.schedule)
    times = _component(TIME_SAMPLERS, config.times)
    return kind(config.method.config, backbone, vocabulary, schedule, times)


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
        with torch.device(
            "meta"
        ):  # a file may ask for more than there is memory: first without any
            check_fit(tensors, stored(build_method(config, vocabulary).state_dict(), dtype), where)
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


def _component(registry: Registry[Any], choice: Choice) -> Any:
    """A component is its own configuration, unless it declares one apart."""
    entry: Any = registry[choice.name]
    return entry(choice.config) if hasattr(entry, "Config") else choice.config


def within(folder: Path, name: str) -> Path:
    """A file or folder of a folder, no link that leads out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UnmaskError(f"{path} is a link that leads out of its folder")
    return path
