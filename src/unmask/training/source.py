"""What the loop asks for data."""

from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Int64
from torch import Tensor


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
