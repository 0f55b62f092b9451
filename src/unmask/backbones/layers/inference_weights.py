"""Precomputed inference weights, dropped when the trained weights change."""

from typing import Any

import torch
from torch import nn


class InferenceWeights(nn.Module):
    """A module with `frozen` inference weights.

    A move, a load of other weights and training mode drop them. Each drop raises `edition`, by
    which a CUDA graph that reads the weights detects that it is out of date.
    """

    frozen: Any = None
    edition: int = 0

    @property
    def usable(self) -> Any:
        """The frozen weights; None while gradients are on, since they would not reach the weights."""
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
