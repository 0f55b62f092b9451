"""Which tokens of rows are measured: all that are valid, or, of pairs, the targets."""

from typing import Protocol, runtime_checkable

from jaxtyping import Bool
from torch import Tensor


@runtime_checkable
class PairedRows(Protocol):
    """Rows that may be pairs: a source that is given, and a target to be predicted."""

    def given(self, rows: range) -> Bool[Tensor, "rows length"] | None: ...

    def count(self, rows: range) -> int: ...


def given_in(rows: object, part: range) -> Bool[Tensor, "rows length"] | None:
    """The tokens of these rows that are seen and cost nothing, if there are any."""
    return rows.given(part) if isinstance(rows, PairedRows) else None


def count_in(rows: object, part: range, valid: Bool[Tensor, "rows length"]) -> int:
    """How many tokens a figure per token is of: the valid ones, or the targets with one EOS each."""
    return rows.count(part) if isinstance(rows, PairedRows) else int(valid.sum())
