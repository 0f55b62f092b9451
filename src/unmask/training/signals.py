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


class Aborted(BaseException):
    """Raised by a signal during validation or sampling, to abort it. A resumed run repeats it."""


class Signals:
    """The signals received so far; false if there are none."""

    def __init__(self) -> None:
        self.caught: list[int] = []
        self._abortable = False

    def __bool__(self) -> bool:
        return bool(self.caught)

    def note(self, number: int) -> None:
        """Records a signal; raises `Aborted` inside `abortable`."""
        self.caught.append(number)
        if self._abortable:
            self._abortable = False  # raises once: clean-up code must not be interrupted
            raise Aborted

    @contextmanager
    def abortable(self) -> Iterator[None]:
        """A context in which a signal raises `Aborted`. An earlier signal raises it on entry."""
        self._abortable = True
        try:
            if self.caught:
                raise Aborted
            yield
        finally:
            self._abortable = False


@contextmanager
def interruptible() -> Iterator[Signals]:
    """A context in which Ctrl-C and SIGTERM are recorded and do not end the program.

    A second Ctrl-C runs the handler that was set before. A second SIGTERM is recorded like the first.
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
