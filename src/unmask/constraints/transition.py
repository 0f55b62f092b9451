"""One token further, or back, from many sets of states at once: a product of matrices."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

States = Bool[np.ndarray, "states rows"]
MOST_DENSE = 256  # states up to which a dense product beats a sparse one


@dataclass(frozen=True, eq=False)
class Step:
    """Which state leads to which by one token of a set, as a matrix to multiply sets of states with."""

    onward: Tensor  # [to, from]
    back: Tensor  # [from, to]

    @classmethod
    def of(
        cls, delta: Int[np.ndarray, "classes states"], classes: Int[np.ndarray, "tokens"]
    ) -> "Step":
        """The step by any token of these classes."""
        states = delta.shape[1]
        back = np.zeros((states, states), np.float32)
        for c in np.unique(classes):
            back[np.arange(states), delta[c]] = 1
        matrices = torch.from_numpy(back.T.copy()), torch.from_numpy(back)
        return cls(*(m if states <= MOST_DENSE else m.to_sparse() for m in matrices))

    def forward(self, states: States) -> States:
        """The states behind the step."""
        return _times(self.onward, states)

    def backward(self, states: States) -> States:
        """The states before the step."""
        return _times(self.back, states)


def _times(matrix: Tensor, states: States) -> States:
    return (matrix @ torch.from_numpy(states.astype(np.float32))).numpy() > 0
