"""How long a user waits: from the start of the process to the first text, and for all of it."""

import os
import sys
import time
from pathlib import Path

_IMPORTED = time.monotonic()


class Stopwatch:
    """Notes when the first text is on screen."""

    def __init__(self) -> None:
        self.first: float | None = None

    def shown(self) -> None:
        """Text is on its way to the screen: see it off."""
        if self.first is None:
            sys.stdout.flush()
            self.first = running()

    def tell(self, tokens: int, calls: int, seconds: float) -> None:
        """Both figures, beside the text and not in it."""
        print(
            f"first text after {self.first or running():.2f} s; {tokens} tokens in {calls} network "
            f"calls took {seconds:.2f} s",
            file=sys.stderr,
        )


def running() -> float:
    """Seconds since the process began, or, where the system does not tell, since this import."""
    try:
        # the name, which may hold anything, stands in brackets; behind them field 22 is the 20th
        started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        began = int(started) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, IndexError, ValueError):
        return time.monotonic() - _IMPORTED
