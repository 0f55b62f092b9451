"""Standard output: characters that its encoding lacks, and the time until text is shown."""

import codecs
import io
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_NAME = "unmask.spelt"
_SPELLINGS = {
    "≤": "<=", "≥": ">=", "±": "+-", "·": "-", "×": "x", "…": "...", "–": "-", "—": "-", "→": "->",
    "░": "#", "█": "#",
}  # fmt: skip


def spell_what_is_missing() -> None:
    """Lets standard output and standard error write any text: a character may come out as its spelling."""
    codecs.register_error(_NAME, _spelt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)


def _spelt(error: UnicodeError) -> tuple[str | bytes, int]:
    """The spelling of one character, or its escape; a byte of a name that was no text is that byte again."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # as `surrogateescape` reads them
        return bytes([code - 0xDC00]), error.start + 1
    spelling = _SPELLINGS.get(character) or character.encode("ascii", "backslashreplace").decode()
    return spelling, error.start + 1


_IMPORTED = time.monotonic()


class Stopwatch:
    """Notes when the first text is on screen."""

    def __init__(self) -> None:
        self.first: float | None = None

    def shown(self) -> None:
        """Text is on its way to the screen: see it off."""
        print(end="", flush=True)
        if self.first is None:
            self.first = running()

    def tell(self, tokens: int, calls: Sequence[int], seconds: float) -> None:
        """Both figures, beside the text and not in it; `calls` is of each text."""
        several = f"{len(calls)} texts, " * (len(calls) > 1)
        each = " or fewer each" * (len(calls) > 1)
        print(
            f"first text after {self.first or running():.2f} s; {several}{tokens} tokens in "
            f"{max(calls)} network calls{each} took {seconds:.2f} s",
            file=sys.stderr,
        )


def running() -> float:
    """Seconds since the process began, or, where the system does not tell, since this import."""
    try:
        # the name, which may hold anything, stands in brackets; behind them field 22 is the 20th
        started = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        began = int(started) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, IndexError, ValueError):
        return time.monotonic() - _IMPORTED
