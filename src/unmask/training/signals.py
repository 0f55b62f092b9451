"""Handlers of Ctrl-C and SIGTERM, which stop training between two steps."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
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


class _Answer:
    """A thread that prints a line when the first signal arrives, also during a long computation.

    Python runs signal handlers only between two calls of torch, and a backward pass is one call.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.given = threading.Event()
        self._sent, self._received = socket.socketpair()
        self._sent.setblocking(False)
        self._before = signal.set_wakeup_fd(self._sent.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while number := self._received.recv(1):
            if number[0] in (signal.SIGINT, signal.SIGTERM) and not self.given.is_set():
                self._say("stopping after this step; press again to stop now")
                self.given.set()

    def close(self) -> None:
        signal.set_wakeup_fd(self._before)
        self._sent.close()
        self._thread.join()
        self._received.close()


@contextmanager
def interruptible(say: Callable[[str], None] = print) -> Iterator[Signals]:
    """A context in which Ctrl-C and SIGTERM are recorded and do not end the program.

    A second Ctrl-C runs the handler that was set before.
    A second SIGTERM is recorded like the first.
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
        answer.given.wait(1.0)  # the answer comes before all other lines
        signals.note(number)

    answer = _Answer(say)
    try:
        for number in before:
            signal.signal(number, note)
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        answer.close()
