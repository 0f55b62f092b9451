"""Shuffled batches without state: a batch is a function of (seed, step), so resuming is asking again."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from unmask.data.rows.shuffle import Shares, drawn
from unmask.data.rows.stream_rows import StreamLoader
from unmask.data.rows.token_rows import Rows
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.randomness import RowStream


@lru_cache(maxsize=1)  # of one batch several things are asked
def _indices(seed: int, first: int, part: range, shares: Shares) -> NDArray[np.int64]:
    """Which rows stand at the places `part` behind `first`, over all epochs."""
    return drawn(seed, first + np.asarray(part, np.int64), shares)


@dataclass(frozen=True)
class LabelDropout:
    """Lets some labelled rows begin with BOS, so that the model learns text without a class too."""

    tokenizer: Tokenizer
    probability: float

    def __call__(
        self, x: Int64[Tensor, "rows length"], stream: RowStream
    ) -> Int64[Tensor, "rows length"]:
        """The rows as a step sees them: which lose their class is a function of (seed, step, row)."""
        labels, bos_id = self.tokenizer.labels, self.tokenizer.vocabulary.bos_id
        if not labels or bos_id is None:
            return x
        labelled = torch.isin(x[:, 0], torch.tensor(list(labels.values())))
        dropped = labelled & (stream.uniform("label dropout", 1)[:, 0] < self.probability)
        x[dropped, 0] = bos_id
        return x


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

    def counted(self, step: int, part: range) -> Int64[Tensor, "part"]:
        """Tokens of each of those rows that the mean loss is per."""
        return self.rows.counted(self.indices(step, part))

    def count(self, step: int, part: range) -> int:
        """How many tokens of those rows the mean loss is per."""
        return int(self.counted(step, part).sum())

    def indices(self, step: int, part: range) -> NDArray[np.int64]:
        """Which rows those are."""
        if part and not 0 <= min(part) <= max(part) < self.size:
            raise IndexError(f"rows {part} of a batch of {self.size}")
        return _indices(self.seed, step * self.size, part, self.rows.shares)


SHORTEST = 3  # BOS, a token and EOS


class ShortRows:
    """A loader of which a share of the rows ends, with EOS, at a uniformly drawn length."""

    def __init__(self, loader: Loader | StreamLoader, share: float, eos_id: int) -> None:
        self.loader, self.share, self.eos_id = loader, share, eos_id

    def batch(
        self, step: int, part: range
    ) -> tuple[Int64[Tensor, "part length"], Bool[Tensor, "part length"]]:
        """The rows as a step sees them: what is cut is a function of (seed, step, row)."""
        x, valid = self.loader.batch(step, part)
        ends = self._ends(step, part)
        rows = (ends < valid.sum(1)).nonzero()[:, 0]
        x[rows, ends[rows] - 1] = self.eos_id
        return x, valid & (torch.arange(x.shape[1]) < ends[:, None])

    def given(self, step: int, part: range) -> Bool[Tensor, "part length"] | None:
        """Rows of text are predicted whole."""
        return self.loader.given(step, part)

    def count(self, step: int, part: range) -> int:
        """How many tokens of those rows the mean loss is per."""
        whole = self.loader.counted(step, part)
        return int(torch.minimum(whole, self._ends(step, part)).sum())

    def _ends(self, step: int, part: range) -> Int64[Tensor, "part"]:
        """Where rows end; the row length where nothing is cut."""
        length = self.loader.rows.length
        u = RowStream(self.loader.seed, step, part, self.loader.size).uniform("short rows", 2)
        ends = SHORTEST + (u[:, 1] * (length - SHORTEST)).long()
        return torch.where(u[:, 0] < self.share, ends, length)


@runtime_checkable
class BatchSource(Protocol):
    """Rows `part` of the global batch of a step: a pure function of its arguments."""

    def batch(
        self, step: int, part: range
    ) -> tuple[Int64[Tensor, "rows length"], Bool[Tensor, "rows length"]]: ...

    def given(self, step: int, part: range) -> Bool[Tensor, "rows length"] | None:
        """Which of their tokens are seen and not predicted; None for none."""

    def count(self, step: int, part: range) -> int:
        """How many of their tokens the mean loss is per."""
