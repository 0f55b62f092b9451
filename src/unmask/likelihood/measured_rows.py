"""What a model must beat: token frequencies alone."""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from unmask.methods.method import targets


class TokenRows(Protocol):
    """Rows of tokens, and how much text they cover.

    They may know more: their `tokens`, so that a part has its share of the text; whether what
    they cover is such a share (`text_estimated`); how many pairs were `left_out`; how many tokens are
    `unknown`; what is `unread`; a `digest` of them, by which parts of one text know each other.
    """

    bytes: int
    characters: int

    def __len__(self) -> int: ...

    def __getitem__(
        self, rows: range
    ) -> tuple[Int[Tensor, "rows length"], Bool[Tensor, "rows length"]]: ...


def unigram_nats(train: TokenRows, valid: TokenRows, vocabulary: int) -> float:
    """Nats per token of validation text under the training text's token frequencies (add-one)."""
    counts = _counts(train, vocabulary) + 1
    log_frequencies = (counts / counts.sum()).log()
    seen = _counts(valid, vocabulary)
    return -math.fsum((seen * log_frequencies).tolist()) / float(seen.sum())


def _counts(rows: TokenRows, vocabulary: int, block: int = 4096) -> torch.Tensor:
    counts = torch.zeros(vocabulary, dtype=torch.float64)
    for start in range(0, len(rows), block):
        x, valid = rows[range(start, min(start + block, len(rows)))]
        counts += torch.bincount(x[valid], minlength=vocabulary)
    return counts


@runtime_checkable
class PairedRows(Protocol):
    """Rows that may be pairs: a source that is given, and a target to be predicted."""

    def given(self, rows: range) -> Bool[Tensor, "rows length"] | None: ...

    def counted(self, rows: range) -> Int64[Tensor, "rows"]: ...


def given_in(rows: object, part: range) -> Bool[Tensor, "rows length"] | None:
    """The tokens of these rows that are seen and cost nothing, if there are any."""
    return rows.given(part) if isinstance(rows, PairedRows) else None


def counted_in(
    rows: object, part: range, valid: Bool[Tensor, "rows length"]
) -> Int64[Tensor, "rows"]:
    """How many tokens of each row figures are per: the valid ones, or the target's and one EOS."""
    return rows.counted(part) if isinstance(rows, PairedRows) else valid.sum(1)


def first_targets(
    valid: Bool[Tensor, "rows length"],
    given: Bool[Tensor, "rows length"] | None,
    counted: Int64[Tensor, "rows"],
) -> Bool[Tensor, "rows length"]:
    """The places that are counted: of each row the first to be predicted, without the filling."""
    wanted = targets(valid, given)
    return wanted & (wanted.cumsum(1) <= counted[:, None])
