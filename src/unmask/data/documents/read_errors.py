"""Read errors of a corpus: unreadable records are skipped and counted; too many are an error."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ParamSpec

from unmask.errors import UnmaskError

P = ParamSpec("P")

_ENOUGH = 1000  # from this many records on, the share is checked at each read error
_NAMED = 20  # damaged files that are listed one by one


@dataclass
class ReadErrors:
    """Read errors of one pass over a corpus: skipped records, records in all, first reason.

    Damaged files are listed apart, since the number of records after the damage is unknown.
    """

    allowed: float = 0.0  # share of records; with 0 the first read error is raised
    seen: int = 0
    passed: int = 0  # skipped records
    first: str = ""  # reason of the first read error
    files: list[str] = field(default_factory=list)  # one message per damaged file

    def begin(self) -> None:
        """Resets the counts before another pass over the corpus."""
        self.seen, self.passed, self.first, self.files = 0, 0, "", []

    def add(self, reason: str, count: int = 1) -> None:
        """Counts unreadable records with one reason; raises an error if they are too many."""
        self.passed += count
        self.first = self.first or reason
        if not self.allowed or self.seen >= _ENOUGH:
            self.check()

    def break_off(self, message: str) -> None:
        """Records the message about a file that cannot be read to its end."""
        self.files.append(message)
        if not self.allowed:
            self.check()

    def document(self, read: Callable[P, str], *args: P.args, **options: P.kwargs) -> str:
        """The document that `read` returns. An error is counted and gives an empty document."""
        try:
            return read(*args, **options)
        except UnmaskError as error:
            self.add(str(error))
            return ""

    def check(self) -> None:
        """Raises the first read error if the share of skipped records is above `allowed`."""
        if self.files and not self.allowed:
            raise UnmaskError(self.files[0])
        if self.passed <= self.allowed * self.seen:
            return
        if not self.allowed:
            raise UnmaskError(self.first)
        raise UnmaskError(
            f"{self.first} ({self.passed:,} of {self.seen:,} lines or records cannot be read; "
            f"data.corrupt allows {self.allowed:g} of them)"
        )


def read_error_notes(source: str, faults: ReadErrors) -> Iterator[str]:
    """Notes for the user: one for all unreadable records of a source, one per damaged file."""
    if faults.passed:
        yield (
            f"skipped {faults.passed:,} of {faults.seen:,} lines or records of {source}, which cannot "
            f"be read; the first: {faults.first}"
        )
    yield from faults.files[:_NAMED]
    if (more := len(faults.files) - _NAMED) > 0:
        yield f"{more:,} more files of {source} are damaged"
