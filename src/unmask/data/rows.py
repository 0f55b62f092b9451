"""Rows of tokens, in memory or mapped from a file."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import ArrayLike
from torch import Tensor

from unmask.data.packing import Table, Totals

Batch = tuple[Int64[Tensor, "batch length"], Bool[Tensor, "batch length"]]


class Rows:
    """Token rows of one length, with what they cover: `tokens` are the valid ones, BOS and EOS too."""

    def __init__(self, table: Table, totals: Totals) -> None:
        self._table = table
        self.length = table.shape[1] - 1
        self.tokens = totals.tokens
        self.bytes = totals.bytes
        self.characters = totals.characters

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: ArrayLike | range) -> Batch:
        """The rows of a range or an array of indices: tokens, and which of them are valid."""
        block = self._table[np.asarray(index, dtype=np.int64)]
        valid = np.arange(self.length) < block[:, :1]
        return torch.from_numpy(block[:, 1:].astype(np.int64)), torch.from_numpy(valid)


def batches(
    rows: Rows, size: int
) -> Iterator[tuple[int, Int64[Tensor, "batch length"], Bool[Tensor, "batch length"]]]:
    """All rows in order, `size` at a time (the last batch may be smaller), each with its first row."""
    for first in range(0, len(rows), size):
        yield first, *rows[range(first, min(first + size, len(rows)))]
