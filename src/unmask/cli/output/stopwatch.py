"""How long a user waits: from the start of the process to the first text, and for all of it."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

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
