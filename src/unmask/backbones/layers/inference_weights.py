"""What inference works out once, and must not outlive the weights that it was made of."""

from typing import Any

import torch
from torch import nn


class InferenceWeights(nn.Module):
    """A module with something `frozen`, forgotten when its weights move, change or are to be trained.

    Whoever made something else of it, such as a graph that reads the weights where they are, can see
    by the `edition` that it is out of date.
    """

    frozen: Any = None
    edition: int = 0

    @property
    def usable(self) -> Any:
        """What is frozen, where nobody asks for a gradient: it would not reach the weights."""
        return None if torch.is_grad_enabled() else self.frozen

    def thaw(self) -> None:
        """Forgets what was worked out."""
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
