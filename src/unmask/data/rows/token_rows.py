"""Rows of tokens of one corpus or a mixture, in memory or memory-mapped."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import ArrayLike
from torch import Tensor

from unmask.data.documents.read_errors import ReadErrors, read_error_notes
from unmask.data.rows.row_counts import Table, Totals, tokens_of
from unmask.data.rows.shuffle import Indices, Shares

Batch = tuple[Int64[Tensor, "batch length"], Bool[Tensor, "batch length"]]


@dataclass(frozen=True)
class Layout:
    """The layout of rows: text, pairs or chats. If `filled`, the EOS tokens after a target are valid.

    Tokens with the id `ignored`, such as N of DNA, are not valid. If `marked`, a stored number is
    twice an id, and 1 more at a token that is predicted.
    """

    paired: bool = False
    filled: bool = False
    ignored: int | None = None
    marked: bool = False

    @property
    def counts(self) -> int:
        """The number of count columns before the tokens: valid tokens, and given ones if there are any."""
        return 2 if self.paired or self.marked else 1


TEXT = Layout()
_BLOCK = 1024  # rows per block when unknown tokens are counted
_HASHED = 1024  # rows in the digest


class Rows:
    """Token rows of one length with their totals. `tokens` counts valid tokens with BOS and EOS.

    For pairs, `tokens`, `bytes` and `characters` count the targets only, each with one EOS.
    """

    def __init__(self, table: Table, totals: Totals, layout: Layout = TEXT) -> None:
        self._table = table
        self.layout = layout
        self.length = table.shape[1] - self.layout.counts
        self.tokens = totals.tokens
        self.bytes = totals.bytes
        self.characters = totals.characters
        self.left_out = totals.left_out  # pairs too long for a row, chats without an answer
        self.cut = totals.cut  # chats longer than a row
        self.unknown = 0  # unknown tokens; `count_unknown` sets it
        self.faults = totals.faults  # read errors of the corpus

    def __len__(self) -> int:
        return len(self._table)

    @cached_property
    def digest(self) -> str:
        """A hash of up to 1,024 evenly spaced rows, independent of the path of the corpus."""
        index = np.linspace(0, len(self) - 1, min(len(self), _HASHED)).astype(np.int64)
        return hashlib.blake2b(self.taken(index).tobytes(), digest_size=8).hexdigest()

    @property
    def facts(self) -> dict[str, Any]:
        """Numbers and digest of the rows, which must be equal when a run resumes."""
        return {"rows": len(self), "tokens": self.tokens, "text": self.digest}

    @property
    def amount(self) -> str:
        """The number of rows as text."""
        return f"{len(self):,} rows"

    @property
    def unread(self) -> str:
        """The read errors of the corpus as text."""
        return "; ".join(read_error_notes("the text", self.faults))

    @property
    def shares(self) -> Shares:
        """The size and weight of each corpus, for the training order."""
        return Shares((len(self),))

    def __getitem__(self, index: ArrayLike | range) -> Batch:
        """Tokens [batch, length] of some rows, and a mask that is True at valid tokens."""
        block = self.taken(np.asarray(index, dtype=np.int64))
        x = block[:, self.layout.counts :].astype(np.int64)
        valid = np.arange(self.length) < (self.length if self.layout.filled else block[:, :1])
        valid = np.broadcast_to(valid, x.shape).copy()
        if self.layout.marked:
            x //= 2
        if self.layout.ignored is not None:
            valid &= x != self.layout.ignored
        return torch.from_numpy(x), torch.from_numpy(valid)

    def given(self, index: ArrayLike | range) -> Bool[Tensor, "batch length"] | None:
        """True at tokens that are given and not predicted; None for rows of text."""
        if self.layout.marked:
            block = self.taken(np.asarray(index, dtype=np.int64))
            return torch.from_numpy(block[:, self.layout.counts :] % 2 == 0)
        if not self.layout.paired:
            return None
        given = self._counts(index)[:, 1:]
        return torch.from_numpy(np.arange(self.length) < given)

    def counted(self, index: ArrayLike | range) -> Int64[Tensor, "batch"]:
        """The number of tokens in each row over which a loss is averaged: valid,
        but not given tokens.

        Of the EOS tokens after a target only the first is counted.
        """
        if self.layout.ignored is not None:
            return self[index][1].sum(1)
        return torch.from_numpy(tokens_of(self._counts(index)))

    def count_unknown(self, token: int | None) -> None:
        """Sets `unknown` to the number of predicted tokens with the id `token`."""
        if token is None:
            return
        self.unknown = 0
        for start in range(0, len(self), _BLOCK):
            index = range(start, min(start + _BLOCK, len(self)))
            x, valid = self[index]
            given = self.given(index)
            predicted = valid if given is None else valid & ~given
            self.unknown += int(((x == token) & predicted).sum())

    def _counts(self, index: ArrayLike | range) -> Table:
        return self.taken(np.asarray(index, dtype=np.int64), self.layout.counts).astype(np.int64)

    def taken(self, index: Indices, columns: int | None = None) -> Table:
        """Stored rows with their count columns, or only the first `columns` of them."""
        return self._table[index, :columns]


class Mixture(Rows):
    """The rows of several corpora under one numbering: concatenated or evenly interleaved."""

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
        self.cut = sum(part.cut for part in parts)
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
        """The size and weight of each corpus, for the training order."""
        return Shares(tuple(len(part) for part in self._parts), self._weights)

    def taken(self, index: Indices, columns: int | None = None) -> Table:
        """Stored rows with their count columns, or only the first `columns` of them."""
        if self._order is not None:
            index = self._order[index]
        corpus = np.searchsorted(self._ends, index, side="right")
        width = columns or self.layout.counts + self.length
        block = np.empty((len(index), width), np.int64)
        for number in np.unique(corpus).tolist():
            chosen, part = corpus == number, self._parts[number]
            block[chosen] = part.taken(index[chosen] - (self._ends[number] - len(part)), columns)
        return block


def _interleaved(sizes: Sequence[int]) -> Indices:
    """An order of all rows whose every prefix holds each corpus in proportion to its size."""
    keys = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])
    return np.argsort(keys, kind="stable")


def batches(
    rows: Rows, size: int
) -> Iterator[tuple[int, Int64[Tensor, "batch length"], Bool[Tensor, "batch length"]]]:
    """All rows in order as (first index, tokens, validity), in batches of at most `size`."""
    for first in range(0, len(rows), size):
        yield first, *rows[range(first, min(first + size, len(rows)))]
