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


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Gives a list that is empty until a signal came; a second signal acts at once, as without us."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught  # Python hands signals to the main thread only
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield caught
    finally:
        restore()
