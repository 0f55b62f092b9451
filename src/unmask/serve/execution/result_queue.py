"""A queue of results from the thread of a job to the event loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from unmask.model import Model
from unmask.serve.execution.batcher import Ticket

T = TypeVar("T")
AHEAD = 32  # unread results of a job; it waits before it makes more
END: Any = object()  # the item after the last result


class TimedOut(Exception):
    """A job exceeded the time limit."""


class ResultQueue(Generic[T]):
    """The results of one job."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ticket: Ticket,
        job: Callable[[Model], Iterator[T]],
    ) -> None:
        self.ticket = ticket
        self.job: Callable[[Model], Iterator[T]] | None = job
        self._loop = loop
        self._items: asyncio.Queue[T | Exception] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)

    async def next(self, limit: float | None) -> Any:
        """The next result; raises the error of the job."""
        wait = None if limit is None else max(0.0, limit - time.monotonic())
        try:
            async with asyncio.timeout(wait):  # asyncio.wait_for can lose a cancellation
                item = await self._items.get()
        except TimeoutError:
            raise TimedOut(
                "the request exceeded the time limit: use fewer texts, tokens or steps"
            ) from None
        self._room.release()
        if isinstance(item, Exception):
            raise item
        return item

    def put(self, item: T) -> None:
        """Adds a result; waits while `AHEAD` results are unread."""
        if not self._room.acquire(blocking=False):
            self.ticket.end_turn()
            self._room.acquire()
        self.ticket.check()
        self.ticket.progress = time.monotonic()
        self.finish(item)

    def finish(self, end: Any) -> None:
        """Adds the end of the job, or its error. The reader gets the first end that is added."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, end)
        except RuntimeError:  # the event loop is closed: stop the job
            self.ticket.stopped.set()

    def release(self) -> None:
        """Ends the wait of `put` after the reader has left;
        the job then finds that it is stopped.
        """
        self._room.release()
