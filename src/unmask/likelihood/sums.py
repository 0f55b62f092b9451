"""Sums of a likelihood measurement over blocks of rows;
the sums of a corpus' parts can be added.
"""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.likelihood.draws import independent_means

Part = tuple[int, int]  # first row, and the row after the last


@dataclass(frozen=True)
class Conditions:
    """Settings and corpus of a measurement. Sums can be added only if theirs are equal."""

    certificate: str
    of: str  # the process or order that the likelihood belongs to
    draws: int
    seed: int
    rows: int  # of the whole corpus
    bytes: int
    characters: int
    tokens: int = 0
    text: str = ""  # hash of the text
    text_estimated: bool = False  # bytes and characters are estimated from a longer text
    left_out: int = 0  # pairs of the corpus that are longer than a row
    unknown: int = 0  # tokens of the corpus that are the tokenizer's unknown token
    # summary of read errors; it holds paths, which may differ between parts
    unread: str = field(default="", compare=False)


@dataclass(frozen=True)
class Sums:
    """Sums over rows of a corpus, in nats. The value of a row is the mean over its draws."""

    conditions: Conditions
    parts: tuple[Part, ...]  # rows that were measured
    tokens: int
    terms: dict[str, float]
    variance: float  # of a draw of a block's nats, summed over blocks
    variance_squares: float  # the squares of these variances, summed
    nats_squares: float  # over rows: nats ** 2, nats * tokens, tokens ** 2
    nats_tokens: float
    tokens_squares: float
    # on request: of each row its tokens, then its nats under each draw
    by_row: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of_block(
        cls,
        conditions: Conditions,
        start: int,
        terms: dict[str, Float64[Tensor, "draws rows"]],
        tokens: Int64[Tensor, "rows"],
        keep_rows: bool = False,
    ) -> "Sums":
        """The sums of one block: rows from `start` on that share the strata of their noise."""
        nats = torch.stack(list(terms.values())).sum(0)
        draws, rows = nats.shape
        groups = independent_means(nats.sum(1), rows)
        variance = draws / len(groups) * float(groups.var()) if draws > 1 else 0.0
        by_row, lengths = nats.mean(0), tokens.double()
        return cls(
            conditions=conditions,
            parts=((start, start + rows),),
            tokens=int(tokens.sum()),
            terms={name: float(values.sum()) / draws for name, values in terms.items()},
            variance=variance,
            # a variance of fewer groups has fewer degrees of freedom
            variance_squares=variance**2 * max(1, draws - 1) / max(1, len(groups) - 1),
            nats_squares=float(by_row @ by_row),
            nats_tokens=float(by_row @ lengths),
            tokens_squares=float(lengths @ lengths),
            by_row=tuple(zip(*torch.cat([lengths[None], nats]).tolist(), strict=True))
            if keep_rows
            else (),
        )

    @property
    def rows(self) -> int:
        """Number of rows that were measured."""
        return sum(stop - start for start, stop in self.parts)

    @property
    def nats(self) -> float:
        return math.fsum(self.terms.values())

    @property
    def residual(self) -> float:
        """Sum over rows of (nats - average nats * tokens) ** 2: the spread between texts."""
        rate = self.nats / self.tokens
        spread = self.nats_squares - 2 * rate * self.nats_tokens + rate**2 * self.tokens_squares
        return max(spread, 0.0)

    def __add__(self, other: "Sums") -> "Sums":
        for about in fields(Conditions):
            mine, theirs = (getattr(sums.conditions, about.name) for sums in (self, other))
            if about.compare and mine != theirs:
                raise UnmaskError(
                    f"these are no parts of one measurement: {about.name} is {mine} in one and {theirs} "
                    "in another; measure both with the same settings"
                )
        names = [*self.terms, *(name for name in other.terms if name not in self.terms)]
        added = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.type in ("int", "float", int, float)
        }
        return Sums(
            conditions=self.conditions,
            parts=_joined(self.parts + other.parts),
            terms={name: self.terms.get(name, 0.0) + other.terms.get(name, 0.0) for name in names},
            by_row=(*self.by_row, *other.by_row),
            **added,
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as values that JSON can hold."""
        return {name: value for name, value in asdict(self).items() if name != "by_row" or value}

    @classmethod
    def from_dict(cls, saved: Any) -> "Sums":
        """The sums that `to_dict` wrote."""
        try:
            conditions = Conditions(**saved["conditions"])
            parts = tuple((int(start), int(stop)) for start, stop in saved["parts"])
            sums = cls(**{**saved, "conditions": conditions, "parts": parts})
            if min(sums.tokens, sums.rows, conditions.draws) < 1:
                raise ValueError("no row was measured")
            return sums
        except (TypeError, KeyError, ValueError):
            raise UnmaskError(
                "this holds no sums of a measurement: make them with 'unmask evaluate --json'"
            ) from None


def _joined(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Parts in ascending order; adjacent parts are merged into one."""
    joined: list[Part] = []
    for start, stop in sorted(parts):
        if joined and start < joined[-1][1]:
            raise UnmaskError(f"row {start} of the corpus was measured twice: merge each part once")
        if joined and start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
