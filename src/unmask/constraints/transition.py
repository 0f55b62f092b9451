"""Transitions of sets of states by one token, forward and backward, as matrix products."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

States = Bool[np.ndarray, "states rows"]
MOST_DENSE = 256  # up to this number of states, dense products are faster than sparse ones


@dataclass(frozen=True, eq=False)
class Step:
    """Transition matrices of one step by any token of a set of tokens."""

    to_next: Tensor  # [to, from]
    to_previous: Tensor  # [from, to]

    @classmethod
    def of(
        cls, delta: Int[np.ndarray, "classes states"], classes: Int[np.ndarray, "tokens"]
    ) -> "Step":
        """The transition by any token of these classes."""
        states = delta.shape[1]
        to_previous = np.zeros((states, states), np.float32)
        for c in np.unique(classes):
            to_previous[np.arange(states), delta[c]] = 1
        matrices = torch.from_numpy(to_previous.T.copy()), torch.from_numpy(to_previous)
        return cls(*(m if states <= MOST_DENSE else m.to_sparse() for m in matrices))

    def forward(self, states: States) -> States:
        """The states after the token."""
        return _times(self.to_next, states)

    def backward(self, states: States) -> States:
        """The states before the token."""
        return _times(self.to_previous, states)


def _times(matrix: Tensor, states: States) -> States:
    return (matrix @ torch.from_numpy(states.astype(np.float32))).numpy() > 0
