"""Terminal output: replacements of characters that the encoding lacks, and a stopwatch."""

import codecs
import io
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_NAME = "unmask.replace"
_REPLACEMENTS = {
    "≤": "<=", "≥": ">=", "±": "+-", "·": "-", "×": "x", "…": "...", "–": "-", "—": "-", "→": "->",
    "░": "#", "█": "#",
}  # fmt: skip


def replace_unencodable() -> None:
    """Makes standard output and standard error replace characters that their encoding lacks."""
    codecs.register_error(_NAME, _replacement)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)


def _replacement(error: UnicodeError) -> tuple[str | bytes, int]:
    """The replacement of one character, or its escape.
    A surrogate of a file name becomes its byte again.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # bytes that `surrogateescape` decoded
        return bytes([code - 0xDC00]), error.start + 1
    replacement = (
        _REPLACEMENTS.get(character) or character.encode("ascii", "backslashreplace").decode()
    )
    return replacement, error.start + 1


_PATIENCE = 10.0  # seconds between two lines of `Waiting`
_IMPORTED = time.monotonic()


class Stopwatch:
    """Measures the time until the first text is printed."""

    def __init__(self) -> None:
        self.first: float | None = None

    def shown(self) -> None:
        """Flushes standard output and records the time of the first text."""
        print(end="", flush=True)
        if self.first is None:
            self.first = process_seconds()

    def print_times(self, tokens: int, calls: Sequence[int], seconds: float) -> None:
        """Prints the times on standard error; `calls` holds the network calls of each text."""
        several = f"{len(calls)} texts, " * (len(calls) > 1)
        each = " or fewer each" * (len(calls) > 1)
        print(
            f"first text after {self.first or process_seconds():.2f} s; {several}{tokens} tokens in "
            f"{max(calls)} network calls{each} took {seconds:.2f} s",
            file=sys.stderr,
        )


class Waiting:
    """Prints the seconds on standard error, at most every ten, while a text is written."""

    def __init__(self) -> None:
        self.began = self.printed = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self.printed > _PATIENCE:
            self.printed = now
            print(f"writing: {now - self.began:.0f} s", file=sys.stderr, flush=True)


def process_seconds() -> float:
    """Seconds since the process began; without /proc, since the import of this module."""
    try:
        # the process name is in brackets and may contain spaces; field 22 is the 20th after it
        started = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        began = int(started) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, IndexError, ValueError):
        return time.monotonic() - _IMPORTED
