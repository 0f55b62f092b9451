"""Rows of tokens, in memory or mapped from a file."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import ArrayLike
from torch import Tensor

from unmask.data.packing import Table, Totals, tokens_of

Batch = tuple[Int64[Tensor, "batch length"], Bool[Tensor, "batch length"]]


@dataclass(frozen=True)
class Layout:
    """What rows are: text, or pairs, `filled` where the EOS behind a target is valid as well."""

    paired: bool = False
    filled: bool = False

    @property
    def counts(self) -> int:
        """The numbers that stand in front of a row."""
        return 2 if self.paired else 1


TEXT = Layout()


class Rows:
    """Token rows of one length, with what they cover: `tokens` are the valid ones, BOS and EOS too.

    Of pairs, `tokens`, `bytes` and `characters` are those of the targets, each with one EOS.
    """

    def __init__(self, table: Table, totals: Totals, layout: Layout = TEXT) -> None:
        self._table = table
        self._layout = layout
        self.length = table.shape[1] - self._layout.counts
        self.tokens = totals.tokens
        self.bytes = totals.bytes
        self.characters = totals.characters
        self.left_out = totals.left_out  # pairs that did not fit into a row

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: ArrayLike | range) -> Batch:
        """The rows of a range or an array of indices: tokens, and which of them are valid."""
        block = self._table[np.asarray(index, dtype=np.int64)]
        x = block[:, self._layout.counts :].astype(np.int64)
        valid = np.arange(self.length) < (self.length if self._layout.filled else block[:, :1])
        return torch.from_numpy(x), torch.from_numpy(np.broadcast_to(valid, x.shape).copy())

    def given(self, index: ArrayLike | range) -> Bool[Tensor, "batch length"] | None:
        """Which tokens of these rows are seen and not predicted; None if the rows are no pairs."""
        if not self._layout.paired:
            return None
        given = self._counts(index)[:, 1:]
        return torch.from_numpy(np.arange(self.length) < given)

    def counted(self, index: ArrayLike | range) -> Int64[Tensor, "batch"]:
        """How many tokens of each row figures are per: the valid ones, or the target's and one EOS."""
        return torch.from_numpy(tokens_of(self._counts(index)))

    def _counts(self, index: ArrayLike | range) -> Table:
        counts = self._table[np.asarray(index, dtype=np.int64), : self._layout.counts]
        return counts.astype(np.int64)


def batches(
    rows: Rows, size: int
) -> Iterator[tuple[int, Int64[Tensor, "batch length"], Bool[Tensor, "batch length"]]]:
    """All rows in order, `size` at a time (the last batch may be smaller), each with its first row."""
    for first in range(0, len(rows), size):
        yield first, *rows[range(first, min(first + size, len(rows)))]
