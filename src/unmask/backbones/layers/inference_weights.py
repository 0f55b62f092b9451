"""Precomputed inference weights, dropped when the trained weights change."""

from typing import Any, ClassVar

import torch
from torch import nn


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
        """The frozen weights; None if gradients are enabled, which must reach the trained weights."""
        return None if torch.is_grad_enabled() else self.frozen

    def thaw(self) -> None:
        """Drops the frozen weights."""
        self.frozen = None
        self.edition += 1

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
