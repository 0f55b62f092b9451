"""Which tokens of rows are measured: all that are valid, or, of pairs, the targets."""

from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Int64
from torch import Tensor

from unmask.methods.method import targets


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
