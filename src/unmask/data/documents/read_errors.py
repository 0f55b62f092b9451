"""What cannot be read: records are passed over and counted, files named; too many records are an error."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ParamSpec

from unmask.errors import UnmaskError

P = ParamSpec("P")

_ENOUGH = 1000  # records of which a share says something before all are read
_NAMED = 20  # damaged files that are told one by one


@dataclass
class ReadErrors:
    """What a reading of a corpus passed over: how many records, of how many, and the first with its reason.

    Files that break off are kept apart: nobody knows how many records were behind that place.
    """

    allowed: float = 0.0  # share; with 0 the first fault is an error
    seen: int = 0
    passed: int = 0
    first: str = ""
    files: list[str] = field(default_factory=list)  # damaged ones, with what was read of each

    def begin(self) -> None:
        """Count anew: a corpus is read several times."""
        self.seen, self.passed, self.first, self.files = 0, 0, "", []

    def add(self, reason: str, count: int = 1) -> None:
        """One of the records that were seen cannot be read, or several for one reason."""
        self.passed += count
        self.first = self.first or reason
        if not self.allowed or self.seen >= _ENOUGH:
            self.check()

    def break_off(self, file: str) -> None:
        """The rest of a file cannot be read."""
        self.files.append(file)
        if not self.allowed:
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


def told(source: str, faults: ReadErrors) -> Iterator[str]:
    """What a user is told about the faults of a source: its records in one line, a line for each file."""
    if faults.passed:
        yield (
            f"passed over {faults.passed:,} of {faults.seen:,} lines or records of {source}, which "
            f"cannot be read; the first: {faults.first}"
        )
    yield from faults.files[:_NAMED]
    if (more := len(faults.files) - _NAMED) > 0:
        yield f"{more:,} more files of {source} are damaged"
