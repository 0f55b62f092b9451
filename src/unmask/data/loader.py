"""Shuffled training batches. A batch is a pure function of (seed, step),
so a loader has no state.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from unmask.data.rows.shuffle import Shares, row_indices
from unmask.data.rows.stream_rows import StreamLoader
from unmask.data.rows.token_rows import Rows
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.randomness import RowStream


@lru_cache(maxsize=1)  # `batch`, `given` and `counted` of a step need the same indices
def _indices(seed: int, first: int, part: range, shares: Shares) -> NDArray[np.int64]:
    """The indices of the rows at positions `first + part` of the order of all epochs."""
    return row_indices(seed, first + np.asarray(part, np.int64), shares)


@dataclass(frozen=True)
class LabelDropout:
    """Replaces the class label of some rows by BOS,
    so that the model also learns unlabelled text.
    """

    tokenizer: Tokenizer
    probability: float
    share_given: float = 0.0  # of labelled rows, dropped labels included

    def __call__(
        self, x: Int64[Tensor, "rows length"], stream: RowStream
    ) -> Int64[Tensor, "rows length"]:
        """The rows, changed in place. Dropout is a function of (seed, step, row)."""
        bos_id = self.tokenizer.vocabulary.bos_id
        if not self.tokenizer.labels or bos_id is None:
            return x
        dropped = self._labelled(x) & (stream.uniform("label dropout", 1)[:, 0] < self.probability)
        x[dropped, 0] = bos_id
        return x

    def given(
        self, x: Int64[Tensor, "rows length"], stream: RowStream
    ) -> Bool[Tensor, "rows length"] | None:
        """True at the first token of some labelled rows, a function of (seed, step, row);
        None without any.

        Samplers give the class at every noise level. Masking would hide it most often at high noise
        levels, where no other token has information about it.
        """
        if not self.tokenizer.labels:
            return None
        given = torch.zeros_like(x, dtype=torch.bool)
        drawn = stream.uniform("label given", 1)[:, 0] < self.share_given
        given[:, 0] = self._labelled(x) & drawn
        return given

    def _labelled(self, x: Int64[Tensor, "rows length"]) -> Bool[Tensor, "rows"]:
        return torch.isin(x[:, 0], torch.tensor(list(self.tokenizer.labels.values())))


@dataclass(frozen=True)
class ReverseComplement:
    """Replaces the sequences of some rows by the other strand, in its reading direction."""

    tokenizer: Tokenizer
    probability: float

    def __call__(
        self,
        x: Int64[Tensor, "rows length"],
        valid: Bool[Tensor, "rows length"],
        stream: RowStream,
    ) -> tuple[Int64[Tensor, "rows length"], Bool[Tensor, "rows length"]]:
        """Tokens and validity of the rows. The choice is a function of (seed, step, row)."""
        v = self.tokenizer.vocabulary
        if not self.probability:
            return x, valid
        if v.complement_ids is None:
            raise UnmaskError(
                "data.reverse_complement needs a tokenizer with complements: "
                "set data.tokenizer.kind dna"
            )
        chosen = stream.uniform("reverse complement", 1)[:, 0] < self.probability
        special = [i for i in (v.bos_id, v.eos_id, v.pad_id, *v.label_ids) if i is not None]
        body = ~torch.isin(x, torch.tensor(special))  # one span of bases per row
        columns = torch.arange(x.shape[1]).expand_as(x)
        first = torch.where(body, columns, x.shape[1]).amin(1, keepdim=True)
        last = torch.where(body, columns, -1).amax(1, keepdim=True)
        source = torch.where(body & chosen[:, None], first + last - columns, columns)
        complements = torch.tensor(v.complement_ids)
        turned = x.gather(1, source)
        turned[chosen] = complements[turned[chosen]]
        return turned, valid.gather(1, source)


class Loader:
    """Full batches of `batch` rows over all epochs. Each epoch has its own order."""

    def __init__(
        self,
        rows: Rows,
        batch: int,
        seed: int,
        dropout: LabelDropout | None = None,
        strands: ReverseComplement | None = None,
    ) -> None:
        if batch < 1:
            raise UnmaskError(f"the batch size is {batch}; it must be at least 1")
        self.rows = rows
        self.size = batch
        self.seed = seed
        self.dropout = dropout
        self.strands = strands

    def batch(
        self, step: int, part: range
    ) -> tuple[Int64[Tensor, "part length"], Bool[Tensor, "part length"]]:
        """Tokens and validity of the rows `part` (0 to batch - 1) of a step's global batch."""
        x, valid = self.rows[self.indices(step, part)]
        stream = RowStream(self.seed, step, part, self.size)
        if self.dropout is not None:
            x = self.dropout(x, stream)
        return (x, valid) if self.strands is None else self.strands(x, valid, stream)

    def given(self, step: int, part: range) -> Bool[Tensor, "part length"] | None:
        """True at tokens that are given and not predicted, of pairs or labelled rows;
        None without any.
        """
        indices = self.indices(step, part)
        given = self.rows.given(indices)
        if given is not None or self.dropout is None or not self.dropout.share_given:
            return given
        stream = RowStream(self.seed, step, part, self.size)
        return self.dropout.given(self.rows[indices][0], stream)

    def counted(self, step: int, part: range) -> Int64[Tensor, "part"]:
        """The number of tokens in each row over which the loss is averaged."""
        return self.rows.counted(self.indices(step, part))

    def count(self, step: int, part: range) -> int:
        """The number of tokens in these rows over which the loss is averaged."""
        return int(self.counted(step, part).sum())

    def indices(self, step: int, part: range) -> NDArray[np.int64]:
        """Indices into `rows` of the rows `part` of a step's global batch."""
        if part and not 0 <= min(part) <= max(part) < self.size:
            raise IndexError(f"rows {part} of a batch of {self.size}")
        return _indices(self.seed, step * self.size, part, self.rows.shares)


SHORTEST = 3  # BOS, a token and EOS


class ShortRows:
    """A loader that cuts a share of its rows to a uniformly drawn length, with EOS at the end."""

    def __init__(self, loader: Loader | StreamLoader, share: float, eos_id: int) -> None:
        self.loader, self.share, self.eos_id = loader, share, eos_id

    def batch(
        self, step: int, part: range
    ) -> tuple[Int64[Tensor, "part length"], Bool[Tensor, "part length"]]:
        """Tokens and validity of the rows after the cut, a function of (seed, step, row)."""
        x, valid = self.loader.batch(step, part)
        ends = self._ends(step, part)
        rows = (ends < valid.sum(1)).nonzero()[:, 0]
        x[rows, ends[rows] - 1] = self.eos_id
        return x, valid & (torch.arange(x.shape[1]) < ends[:, None])

    def given(self, step: int, part: range) -> Bool[Tensor, "part length"] | None:
        """None, since rows of pairs are not shortened."""
        return self.loader.given(step, part)

    def count(self, step: int, part: range) -> int:
        """The number of tokens in these rows, after the cut, over which the loss is averaged."""
        whole = self.loader.counted(step, part)
        return int(torch.minimum(whole, self._ends(step, part)).sum())

    def _ends(self, step: int, part: range) -> Int64[Tensor, "part"]:
        """The length of each row after the cut; the full row length if it is not cut."""
        length = self.loader.rows.length
        u = RowStream(self.loader.seed, step, part, self.loader.size).uniform("short rows", 2)
        ends = SHORTEST + (u[:, 1] * (length - SHORTEST)).long()
        return torch.where(u[:, 0] < self.share, ends, length)


@runtime_checkable
class BatchSource(Protocol):
    """A source of training batches. Each result is a function of `step` and `part` alone."""

    def batch(
        self, step: int, part: range
    ) -> tuple[Int64[Tensor, "rows length"], Bool[Tensor, "rows length"]]: ...

    def given(self, step: int, part: range) -> Bool[Tensor, "rows length"] | None:
        """True at tokens that are given and not predicted; None if there are none."""

    def count(self, step: int, part: range) -> int:
        """The number of tokens in these rows over which the loss is averaged."""


@runtime_checkable
class WeightedSource(BatchSource, Protocol):
    """A source of batches whose tokens have weights in the loss."""

    def weights(self, step: int, part: range) -> Float[Tensor, "rows length"]:
        """The weight of each token."""


class AnswerTails:
    """A loader of chats that puts a random number of EOS behind some rows, for models of whole rows.

    While an answer is written, masks follow its end. A tail teaches the model to fill them. All EOS
    of a tail weigh as one token together, so that they do not outweigh the answers.
    """

    def __init__(self, loader: Loader | StreamLoader, eos_id: int) -> None:
        self.loader, self.eos_id = loader, eos_id

    def batch(
        self, step: int, part: range
    ) -> tuple[Int64[Tensor, "part length"], Bool[Tensor, "part length"]]:
        """Tokens and validity of the rows with their tails, a function of (seed, step, row)."""
        x, valid = self.loader.batch(step, part)
        tail = self._tail(step, part)
        x[tail] = self.eos_id
        return x, valid | tail

    def given(self, step: int, part: range) -> Bool[Tensor, "part length"] | None:
        """True at tokens that are given and not predicted; those of a tail are predicted."""
        given = self.loader.given(step, part)
        return None if given is None else given & ~self._tail(step, part)

    def weights(self, step: int, part: range) -> Float[Tensor, "part length"]:
        """1 at each token, and 1 for all tokens of a tail together."""
        tail = self._tail(step, part)
        return torch.where(tail, 1 / tail.sum(1, keepdim=True).clamp(min=1), 1.0)

    def count(self, step: int, part: range) -> int:
        """The number of tokens over which the loss is averaged; a tail is one."""
        return self.loader.count(step, part) + int(self._tail(step, part).any(1).sum())

    def _tail(self, step: int, part: range) -> Bool[Tensor, "part length"]:
        """True at the tail of each row: uniformly many of the positions behind its text."""
        _, valid = self.loader.batch(step, part)
        stream = RowStream(self.loader.seed, step, part, self.loader.size)
        ends, u = valid.sum(1), stream.uniform("answer tail", 1)[:, 0]
        stops = ends + (u * (valid.shape[1] - ends + 1)).long()
        columns = torch.arange(valid.shape[1])
        return (columns >= ends[:, None]) & (columns < stops[:, None])
