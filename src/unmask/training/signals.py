"""Handlers of Ctrl-C and SIGTERM, which stop training between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Raised after a signal has stopped training, once the checkpoint of `step` is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class CutShort(BaseException):
    """Raised by a signal during validation or sampling, to abort it. A resumed run repeats it."""


class Signals:
    """The signals received so far; false if there are none."""

    def __init__(self) -> None:
        self.caught: list[int] = []
        self._cutting = False

    def __bool__(self) -> bool:
        return bool(self.caught)

    def note(self, number: int) -> None:
        """Records a signal; raises `CutShort` inside `cutting`."""
        self.caught.append(number)
        if self._cutting:
            self._cutting = False  # raises once: clean-up code must not be interrupted
            raise CutShort

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """A context in which a signal raises `CutShort` at once, as does an earlier one on entry."""
        self._cutting = True
        try:
            if self.caught:
                raise CutShort
            yield
        finally:
            self._cutting = False


@contextmanager
def interruptible() -> Iterator[Signals]:
    """A context in which Ctrl-C and SIGTERM are recorded and do not end the program.

    A second Ctrl-C runs the handler that was set before. A second SIGTERM is recorded, too.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals  # Python delivers signals to the main thread only
        return
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # `getsignal` returns None for a handler not set from Python. It could not be restored, so it
    # is not replaced.
    before = {number: handler for number, handler in found.items() if handler is not None}

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:  # not for SIGTERM, which job schedulers repeat
            signal.signal(number, before[signal.SIGINT])
        signals.note(number)

    for number in before:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
