"""Rows to measure: their protocols, their counted tokens, and the unigram baseline."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float64, Int, Int64
from torch import Tensor

from unmask.shapes import targets


class TokenRows(Protocol):
    """Rows of tokens with the bytes and characters of their text.

    Optional attributes: `tokens` is the number of tokens. `text_estimated` is True if bytes and characters
    are estimated from a longer text. `left_out` counts the pairs that are longer than a row, and `unknown`
    the unknown tokens. `unread` is a summary of read errors. `digest` is a hash of the rows.
    """

    bytes: int
    characters: int

    def __len__(self) -> int: ...

    def __getitem__(
        self, rows: range
    ) -> tuple[Int[Tensor, "rows length"], Bool[Tensor, "rows length"]]: ...


def unigram_nats(train: TokenRows, valid: TokenRows, vocabulary: int) -> float:
    """Nats per token of validation text under the training text's token frequencies (add-one)."""
    counts = token_counts(train, vocabulary) + 1
    log_frequencies = (counts / counts.sum()).log()
    seen = token_counts(valid, vocabulary)
    return -math.fsum((seen * log_frequencies).tolist()) / float(seen.sum())


_SAMPLED = 2048  # rows that the statistics of a text are taken from


@dataclass(frozen=True)
class TextStatistics:
    """Statistics of a text that make a bound readable."""

    words: float  # per token
    unigram_nats: float  # per token, under the token frequencies of the text itself


def text_statistics(rows: TokenRows, decode: Callable[[Tensor], str]) -> TextStatistics:
    """Words per token and unigram nats of the first rows, over the tokens that a bound counts."""
    part = range(min(len(rows), _SAMPLED))
    x, valid = rows[part]
    counted = first_targets(valid, given_in(rows, part), counted_in(rows, part, valid))
    tokens = x[counted]
    words = sum(len(decode(row[mask]).split()) for row, mask in zip(x, counted, strict=True))
    frequencies = torch.bincount(tokens).double() / max(1, len(tokens))
    seen = frequencies[frequencies > 0]
    return TextStatistics(words / max(1, len(tokens)), -float((seen * seen.log()).sum()))


def token_counts(
    rows: TokenRows, vocabulary: int, block: int = 4096
) -> Float64[Tensor, "vocabulary"]:
    """The number of occurrences of each id in rows."""
    counts = torch.zeros(vocabulary, dtype=torch.float64)
    for start in range(0, len(rows), block):
        x, valid = rows[range(start, min(start + block, len(rows)))]
        counts += torch.bincount(x[valid], minlength=vocabulary)
    return counts


@runtime_checkable
class PairedRows(Protocol):
    """Rows that may be pairs: the source is given, the target is predicted."""

    def given(self, rows: range) -> Bool[Tensor, "rows length"] | None: ...

    def counted(self, rows: range) -> Int64[Tensor, "rows"]: ...


def given_in(rows: object, part: range) -> Bool[Tensor, "rows length"] | None:
    """Mask of the given tokens of these rows, which carry no loss; None for rows without pairs."""
    return rows.given(part) if isinstance(rows, PairedRows) else None


def counted_in(
    rows: object, part: range, valid: Bool[Tensor, "rows length"]
) -> Int64[Tensor, "rows"]:
    """Number of tokens of each row that the per-token average divides by: valid ones, or target and one EOS."""
    return rows.counted(part) if isinstance(rows, PairedRows) else valid.sum(1)


def first_targets(
    valid: Bool[Tensor, "rows length"],
    given: Bool[Tensor, "rows length"] | None,
    counted: Int64[Tensor, "rows"],
) -> Bool[Tensor, "rows length"]:
    """Mask of the counted positions: the first `counted` predicted ones of each row."""
    wanted = targets(valid, given)
    return wanted & (wanted.cumsum(1) <= counted[:, None])
