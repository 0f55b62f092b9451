"""Handlers of Ctrl-C and SIGTERM, which stop training between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A signal stopped training after `step`; the checkpoint is saved and a line is printed."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class CutShort(BaseException):
    """A signal aborted a validation or sampling, which a resumed run repeats."""


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
        """Inside, a signal raises `CutShort` at once."""
        self._cutting = True
        try:
            if self.caught:
                raise CutShort
            yield
        finally:
            self._cutting = False


@contextmanager
def interruptible() -> Iterator[Signals]:
    """Records Ctrl-C and SIGTERM instead of acting on them.

    A second Ctrl-C acts at once, through the previous handler; a second SIGTERM is recorded.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals  # Python delivers signals to the main thread only
        return
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # None: a handler not set from Python, which could not be restored. It stays in place.
    before = {number: handler for number, handler in found.items() if handler is not None}

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:  # schedulers repeat SIGTERM; a second Ctrl-C is deliberate
            signal.signal(number, before[signal.SIGINT])
        signals.note(number)

    for number in before:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
