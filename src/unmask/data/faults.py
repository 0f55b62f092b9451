"""Lines and records that cannot be read: passed over, counted, and an error when they are too many."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec

from unmask.errors import UnmaskError

P = ParamSpec("P")

_ENOUGH = 1000  # records of which a share says something before all are read


@dataclass
class Faults:
    """What a reading of a corpus passed over: how many records, of how many, and the first with its reason."""

    allowed: float = 0.0  # share; with 0 the first fault is an error
    seen: int = 0
    passed: int = 0
    first: str = ""

    def begin(self) -> None:
        """Count anew: a corpus is read several times."""
        self.seen, self.passed, self.first = 0, 0, ""

    def add(self, reason: str) -> None:
        """One of the records that were seen cannot be read."""
        self.passed += 1
        self.first = self.first or reason
        if not self.allowed or self.seen >= _ENOUGH:
            self.check()

    def document(self, read: Callable[P, str], *args: P.args, **options: P.kwargs) -> str:
        """What `read` makes of a record that was seen, or nothing if it cannot."""
        try:
            return read(*args, **options)
        except UnmaskError as error:
            self.add(str(error))
            return ""

    def check(self) -> None:
        """An error, in the words of the first fault, if the share is above what is allowed."""
        if self.passed <= self.allowed * self.seen:
            return
        if not self.allowed:
            raise UnmaskError(self.first)
        raise UnmaskError(
            f"{self.first} ({self.passed:,} of {self.seen:,} lines or records cannot be read; "
            f"data.corrupt allows {self.allowed:g} of them)"
        )


def told(source: str, faults: Faults) -> str:
    """What a user is told about the faults of a source."""
    return (
        f"passed over {faults.passed:,} of {faults.seen:,} lines or records of {source}, which cannot "
        f"be read; the first: {faults.first}"
    )
