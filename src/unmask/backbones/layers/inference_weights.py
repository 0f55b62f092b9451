"""Precomputed inference weights, dropped when the trained weights change."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from unmask.backbones.layers.ops import SwiGLU

_PLAIN = {nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.GELU, SwiGLU, nn.Sequential}
_WEIGHTS = {nn.Parameter, Tensor, type(None)}


def is_plain(*modules: nn.Module) -> bool:
    """True if the weights of some modules determine their outputs.

    An adapter, a quantised layer or a parametrization has another class.
    A hook may change an output.
    """
    for module in modules:
        if type(module) not in _PLAIN or hooked(module):
            return False
        weight = module._parameters.get("weight")
        if type(weight) not in _WEIGHTS and is_traceable_wrapper_subclass(weight):
            return False  # a plain layer with a quantised weight
    return True


def hooked(module: nn.Module) -> bool:
    """True if a module has a hook, which may change its output."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__  # a hook of accelerate
    )


class Compilable(nn.Module):
    """A module whose `forward` may be compiled in place; copies get the plain one.

    The compiled function reads the original's weights.
    """

    compiled: ClassVar[str] = "forward"  # name of the function

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != self.compiled}


class InferenceWeights(Compilable):
    """A module with `frozen` inference weights.

    The module drops them when it moves to a device, loads weights or enters training mode. Each
    drop increments `edition`. The owner of a CUDA graph makes a new one if the edition has changed.
    """

    frozen: Any = None
    edition: int = 0

    @property
    def usable(self) -> Any:
        """The frozen weights; None if gradients are enabled,
        which must reach the trained weights.
        """
        return None if torch.is_grad_enabled() else self.frozen

    def thaw(self) -> None:
        """Drops the frozen weights, also those of modules inside."""
        for module in self.modules():
            if isinstance(module, InferenceWeights):
                module.frozen = None
                module.edition += 1

    def train(self, mode: bool = True) -> Any:
        if mode:
            self.thaw()
        return super().train(mode)

    def _apply(self, *args: Any, **options: Any) -> Any:
        self.thaw()
        return super()._apply(*args, **options)

    def _load_from_state_dict(self, *args: Any) -> None:
        self.thaw()
        super()._load_from_state_dict(*args)
