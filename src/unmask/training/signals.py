"""Ctrl-C and SIGTERM as a wish that the loop grants between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Training stopped after `step` because it was asked to; everything is saved and said."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class CutShort(BaseException):
    """Work that may take minutes and can be done again was given up for a signal."""


class Signals:
    """Which signals came; none yet is false."""

    def __init__(self) -> None:
        self.caught: list[int] = []
        self._cutting = False

    def __bool__(self) -> bool:
        return bool(self.caught)

    def note(self, number: int) -> None:
        """A signal came."""
        self.caught.append(number)
        if self._cutting:
            self._cutting = False  # once: what clears up is left in peace
            raise CutShort

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """Inside, a signal does not wait: it raises `CutShort`."""
        self._cutting = True
        try:
            if self.caught:
                raise CutShort
            yield
        finally:
            self._cutting = False


@contextmanager
def interruptible() -> Iterator[Signals]:
    """Takes note of signals; a second Ctrl-C acts at once, as without us, a second SIGTERM never."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals  # Python hands signals to the main thread only
        return
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # a host that Python is embedded in may have its own, which nothing here could put back
    before = {number: handler for number, handler in found.items() if handler is not None}

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:  # machines repeat themselves, people insist
            signal.signal(number, before[signal.SIGINT])
        signals.note(number)

    for number in before:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
