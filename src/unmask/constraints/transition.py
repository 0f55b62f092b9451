"""Transitions of sets of states by one token, forward and backward, as matrix products."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.constraints.budget import Budget

States = Bool[np.ndarray, "states rows"]
MOST_DENSE = 256  # up to this number of states, dense products are faster than sparse ones


@dataclass(frozen=True, eq=False)
class Step:
    """Transition matrices of one step by any token of a set of tokens."""

    to_next: Tensor  # [to, from]
    to_previous: Tensor  # [from, to]

    @classmethod
    def of(
        cls,
        delta: Int[np.ndarray, "classes states"],
        classes: Int[np.ndarray, "tokens"],
        budget: Budget,
    ) -> "Step":
        """The transition by any token of these classes."""
        states = delta.shape[1]
        moves = np.zeros((states, states), bool)  # from, to
        for c in np.unique(classes):
            moves[np.arange(states), delta[c]] = True
        budget.charge("cells", states * states + 4 * len(delta) * states)
        if states <= MOST_DENSE:
            dense = torch.from_numpy(moves.astype(np.float32))
            return cls(dense.T.contiguous(), dense)
        budget.charge("bytes", 40 * int(np.count_nonzero(moves)))
        return cls(_sparse(moves.T), _sparse(moves))

    @property
    def nbytes(self) -> int:
        """The bytes of the matrices; a sparse one has two numbers of 8 bytes and one of 4 for each 1."""
        sparse = self.to_next.is_sparse
        return 2 * (20 * self.to_next._nnz() if sparse else self.to_next.nbytes)

    def forward(self, states: States) -> States:
        """The states after the token."""
        return _times(self.to_next, states)

    def backward(self, states: States) -> States:
        """The states before the token."""
        return _times(self.to_previous, states)


def _sparse(moves: Bool[np.ndarray, "states states"]) -> Tensor:
    """Ones at the moves. `nonzero` gives them in order, so nothing is left to sort or check."""
    places = torch.from_numpy(np.stack(moves.nonzero()))
    ones, size = torch.ones(places.shape[1]), torch.Size(moves.shape)
    return torch.sparse_coo_tensor(places, ones, size, check_invariants=False, is_coalesced=True)


def _times(matrix: Tensor, states: States) -> States:
    return (matrix @ torch.from_numpy(states.astype(np.float32))).numpy() > 0
