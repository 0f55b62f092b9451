"""Rows of tokens, in memory or mapped from a file."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import ArrayLike
from torch import Tensor

from unmask.data.documents.read_errors import ReadErrors, told
from unmask.data.rows.row_counts import Table, Totals, tokens_of
from unmask.data.rows.shuffle import Places, Shares

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
_AT_ONCE = 1024  # rows
_HASHED = 1024


class Rows:
    """Token rows of one length, with what they cover: `tokens` are the valid ones, BOS and EOS too.

    Of pairs, `tokens`, `bytes` and `characters` are those of the targets, each with one EOS.
    """

    def __init__(self, table: Table, totals: Totals, layout: Layout = TEXT) -> None:
        self._table = table
        self.layout = layout
        self.length = table.shape[1] - self.layout.counts
        self.tokens = totals.tokens
        self.bytes = totals.bytes
        self.characters = totals.characters
        self.left_out = totals.left_out  # pairs that did not fit into a row
        self.unknown = 0  # tokens that stand for what has none, once they are counted
        self.faults = totals.faults  # what could not be read of the corpus

    def __len__(self) -> int:
        return len(self._table)

    @cached_property
    def digest(self) -> str:
        """A hash of some rows from first to last: other texts have another, wherever they lie."""
        some = np.linspace(0, len(self) - 1, min(len(self), _HASHED)).astype(np.int64)
        return hashlib.blake2b(self.taken(some).tobytes(), digest_size=8).hexdigest()

    @property
    def facts(self) -> dict[str, int]:
        """The numbers by which a resumed run knows its rows again."""
        return {"rows": len(self), "tokens": self.tokens}

    @property
    def amount(self) -> str:
        """The number of rows in words."""
        return f"{len(self):,} rows"

    @property
    def unread(self) -> str:
        """In words what of the corpus could not be read."""
        return "; ".join(told("the text", self.faults))

    @property
    def shares(self) -> Shares:
        """What training draws from."""
        return Shares((len(self),))

    def __getitem__(self, index: ArrayLike | range) -> Batch:
        """The rows of a range or an array of indices: tokens, and which of them are valid."""
        block = self.taken(np.asarray(index, dtype=np.int64))
        x = block[:, self.layout.counts :].astype(np.int64)
        valid = np.arange(self.length) < (self.length if self.layout.filled else block[:, :1])
        return torch.from_numpy(x), torch.from_numpy(np.broadcast_to(valid, x.shape).copy())

    def given(self, index: ArrayLike | range) -> Bool[Tensor, "batch length"] | None:
        """Which tokens of these rows are seen and not predicted; None if the rows are no pairs."""
        if not self.layout.paired:
            return None
        given = self._counts(index)[:, 1:]
        return torch.from_numpy(np.arange(self.length) < given)

    def counted(self, index: ArrayLike | range) -> Int64[Tensor, "batch"]:
        """How many tokens of each row figures are per: the valid ones, or the target's and one EOS."""
        return torch.from_numpy(tokens_of(self._counts(index)))

    def count_unknown(self, token: int | None) -> None:
        """Count a tokenizer's unknown token where it is predicted."""
        if token is None:
            return
        self.unknown = 0
        for start in range(0, len(self), _AT_ONCE):
            index = range(start, min(start + _AT_ONCE, len(self)))
            x, valid = self[index]
            given = self.given(index)
            wanted = valid if given is None else valid & ~given
            self.unknown += int(((x == token) & wanted).sum())

    def _counts(self, index: ArrayLike | range) -> Table:
        return self.taken(np.asarray(index, dtype=np.int64), self.layout.counts).astype(np.int64)

    def taken(self, index: Places, columns: int | None = None) -> Table:
        """Rows as they are stored, or their first columns."""
        return self._table[index, :columns]


class Mixture(Rows):
    """The rows of several corpora, numbered through: one behind the other, or evenly interleaved."""

    def __init__(
        self, parts: Sequence[Rows], weights: Sequence[float], interleaved: bool = False
    ) -> None:
        self._parts = parts
        self._weights = tuple(weights)
        self._ends = np.cumsum([len(part) for part in parts])
        self.layout = parts[0].layout
        self.length = parts[0].length
        self.tokens = sum(part.tokens for part in parts)
        self.bytes = sum(part.bytes for part in parts)
        self.characters = sum(part.characters for part in parts)
        self.left_out = sum(part.left_out for part in parts)
        self.unknown = 0
        self.faults = ReadErrors(
            seen=sum(part.faults.seen for part in parts),
            passed=sum(part.faults.passed for part in parts),
            first=next((part.faults.first for part in parts if part.faults.passed), ""),
            files=[file for part in parts for file in part.faults.files],
        )
        self._order = _interleaved([len(part) for part in parts]) if interleaved else None

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def shares(self) -> Shares:
        """What training draws from."""
        return Shares(tuple(len(part) for part in self._parts), self._weights)

    def taken(self, index: Places, columns: int | None = None) -> Table:
        """Rows as they are stored, or their first columns."""
        if self._order is not None:
            index = self._order[index]
        corpus = np.searchsorted(self._ends, index, side="right")
        width = columns or self.layout.counts + self.length
        block = np.empty((len(index), width), np.int64)
        for number in np.unique(corpus).tolist():
            here, part = corpus == number, self._parts[number]
            block[here] = part.taken(index[here] - (self._ends[number] - len(part)), columns)
        return block


def _interleaved(sizes: Sequence[int]) -> Places:
    """All rows of all corpora, so that any first ones are of each in proportion to its size."""
    keys = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])
    return np.argsort(keys, kind="stable")


def batches(
    rows: Rows, size: int
) -> Iterator[tuple[int, Int64[Tensor, "batch length"], Bool[Tensor, "batch length"]]]:
    """All rows in order, `size` at a time (the last batch may be smaller), each with its first row."""
    for first in range(0, len(rows), size):
        yield first, *rows[range(first, min(first + size, len(rows)))]
