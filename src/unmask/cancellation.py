"""Ends a running job: a caller gives a check, and long loops call it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None]] = ContextVar("cancellation", default=lambda: None)


def raise_if_cancelled() -> None:
    """Raises the error of the job's check; does nothing in a job without one.

    Every step of a sampler and of the constraint compiler calls it.
    """
    _check.get()()


@contextmanager
def cancelled_by(check: Callable[[], None]) -> Iterator[None]:
    """Gives the code inside, in this thread, a check that raises an error once the job is to end.

    Args:
        check: Called by long loops; it raises an error to end them.

    Example:
        >>> def stop():
        ...     raise KeyboardInterrupt
        >>> with cancelled_by(stop):
        ...     raise_if_cancelled()
        Traceback (most recent call last):
        KeyboardInterrupt
    """
    previous = _check.set(check)
    try:
        yield
    finally:
        _check.reset(previous)
