"""Shuffled batches without state: a batch is a function of (seed, step), so resuming is asking again."""

from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from unmask.data.labels import LabelDropout
from unmask.data.order import Shares, drawn
from unmask.data.rows import Rows
from unmask.errors import UnmaskError
from unmask.randomness import RowStream


@lru_cache(maxsize=1)  # of one batch several things are asked
def _indices(seed: int, first: int, part: range, shares: Shares) -> NDArray[np.int64]:
    """Which rows stand at the places `part` behind `first`, over all epochs."""
    return drawn(seed, first + np.asarray(part, np.int64), shares)


class Loader:
    """Full batches of `batch` rows, epoch after epoch, each epoch in an order of its own."""

    def __init__(
        self, rows: Rows, batch: int, seed: int, dropout: LabelDropout | None = None
    ) -> None:
        if batch < 1:
            raise UnmaskError(f"the batch size is {batch}; it must be at least 1")
        self.rows = rows
        self.size = batch
        self.seed = seed
        self.dropout = dropout

    def batch(
        self, step: int, part: range
    ) -> tuple[Int64[Tensor, "part length"], Bool[Tensor, "part length"]]:
        """The rows `part`, numbered 0 to batch - 1, of the global batch of a step."""
        x, valid = self.rows[self.indices(step, part)]
        if self.dropout is not None:
            x = self.dropout(x, RowStream(self.seed, step, part, self.size))
        return x, valid

    def given(self, step: int, part: range) -> Bool[Tensor, "part length"] | None:
        """Which tokens of those rows are seen and not predicted; None if the rows are no pairs."""
        return self.rows.given(self.indices(step, part))

    def count(self, step: int, part: range) -> int:
        """How many tokens of those rows the mean loss is per."""
        return int(self.rows.counted(self.indices(step, part)).sum())

    def indices(self, step: int, part: range) -> NDArray[np.int64]:
        """Which rows those are."""
        if part and not 0 <= min(part) <= max(part) < self.size:
            raise IndexError(f"rows {part} of a batch of {self.size}")
        return _indices(self.seed, step * self.size, part, self.rows.shares)
