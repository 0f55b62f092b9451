"""Transitions of many sets of states by one token, forward and backward, as matrix products."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

States = Bool[np.ndarray, "states rows"]
MOST_DENSE = 256  # up to this number of states, dense products are faster than sparse ones


@dataclass(frozen=True, eq=False)
class Step:
    """Transition matrices of any one token of a set, for products with sets of states."""

    onward: Tensor  # [to, from]
    back: Tensor  # [from, to]

    @classmethod
    def of(
        cls, delta: Int[np.ndarray, "classes states"], classes: Int[np.ndarray, "tokens"]
    ) -> "Step":
        """The transition by any token of these classes."""
        states = delta.shape[1]
        back = np.zeros((states, states), np.float32)
        for c in np.unique(classes):
            back[np.arange(states), delta[c]] = 1
        matrices = torch.from_numpy(back.T.copy()), torch.from_numpy(back)
        return cls(*(m if states <= MOST_DENSE else m.to_sparse() for m in matrices))

    def forward(self, states: States) -> States:
        """The states after the token."""
        return _times(self.onward, states)

    def backward(self, states: States) -> States:
        """The states before the token."""
        return _times(self.back, states)


def _times(matrix: Tensor, states: States) -> States:
    return (matrix @ torch.from_numpy(states.astype(np.float32))).numpy() > 0
