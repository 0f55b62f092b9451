"""Runs concurrent jobs, each in its own thread, with batched network calls."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import torch

from unmask.cancellation import cancelled_by
from unmask.errors import unknown
from unmask.model import Model
from unmask.runtime.cores import available_cores
from unmask.serve.execution.batched_model import batched_model
from unmask.serve.execution.batcher import Batcher, Counts, Stopped, Ticket
from unmask.serve.limits import check_capacity

T = TypeVar("T")
AHEAD = 32  # unread results of a job; it waits before it makes more


class Busy(Exception):
    """The engine is full."""


class Closing(Exception):
    """The engine shuts down: it refuses new jobs and stops running ones."""


class TimedOut(Exception):
    """A job exceeded the time limit."""


class Engine:
    """Runs jobs on models.

    Concurrent jobs do not change a result. On a CPU in float32 it is equal to the bit.

    Args:
        models: the served models by name.
        active: the number of jobs that run at a time.
        waiting: the number of jobs that may wait; further ones raise `Busy`.
        timeout: the time limit of a job in seconds; None = no limit.
        workers: the number of threads for network passes; None = one per core on a CPU, else 1.
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        *,
        active: int = 32,
        waiting: int = 32,
        timeout: float | None = None,
        workers: int | None = None,
    ) -> None:
        check_capacity(active, waiting, timeout, workers)
        self.models = dict(models)
        self.timeout = timeout
        self._limit = active + waiting
        self._tickets: set[Ticket] = set()
        self._lock = threading.Lock()
        self._closing = False
        on_cpu = all(model.device.type == "cpu" for model in self.models.values())
        self._threads_before = torch.get_num_threads()
        if on_cpu:  # one thread per worker: see the batcher
            torch.set_num_threads(1)
        self._batcher = Batcher(workers or (available_cores() if on_cpu else 1))
        self._pool = ThreadPoolExecutor(active, "job")
        self._turns = threading.Semaphore(1 if on_cpu else active)

    async def run(self, model: str, job: Callable[[Model], Iterator[T]]) -> AsyncGenerator[T, None]:
        """The results of a job, as it makes them.

        Closing the iterator stops the job at its next network call, or at once if it has not begun.
        """
        if model not in self.models:
            raise unknown("model", model, self.models)
        queue = _ResultQueue[T](asyncio.get_running_loop(), self._admit(), job)
        limit = None if self.timeout is None else time.monotonic() + self.timeout
        future = self._pool.submit(self._work, self.models[model], queue)
        try:
            while (item := await queue.next(limit)) is not _END:
                yield item
        finally:
            self._batcher.stop(queue.ticket)
            queue.release()
            if future.cancel():
                queue.job = None  # frees its memory: the pool keeps the cancelled item for a while
                self._leave(queue.ticket)

    async def one(self, model: str, job: Callable[[Model], Iterator[T]]) -> T:
        """The first result of a job, which is then stopped."""
        async with aclosing(self.run(model, job)) as results:
            return await anext(results)

    @property
    def jobs(self) -> int:
        """The number of running and waiting jobs."""
        return len(self._tickets)

    @property
    def full(self) -> bool:
        """True if another job would be refused."""
        return self.jobs >= self._limit

    @property
    def counts(self) -> Counts:
        """Counters of the network passes."""
        return self._batcher.counts

    @property
    def pending(self) -> int:
        """The number of network calls that wait for a worker."""
        return self._batcher.pending

    @property
    def closing(self) -> bool:
        """True if the engine shuts down and refuses new jobs."""
        return self._closing

    async def drain(self, grace: float) -> None:
        """Refuses new jobs, waits up to `grace` seconds for the running ones, and stops the rest."""
        self._closing = True
        end = time.monotonic() + grace
        while self._tickets and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self._stop_all()

    def close(self) -> None:
        """Stops all jobs and threads."""
        self._closing = True
        self._stop_all()
        self._batcher.close()
        self._pool.shutdown()
        torch.set_num_threads(self._threads_before)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _admit(self) -> Ticket:
        with self._lock:
            if self._closing:
                raise Closing("the server is shutting down")
            if self.full:
                raise Busy(f"the server is full, with {self.jobs} requests: try again later")
            ticket = Ticket(self._turns)
            self._tickets.add(ticket)
            return ticket

    def _leave(self, ticket: Ticket) -> None:
        with self._lock:
            self._tickets.discard(ticket)

    def _stop_all(self) -> None:
        with self._lock:
            tickets = list(self._tickets)
        for ticket in tickets:
            self._batcher.stop(ticket)

    def _work(self, model: Model, queue: "_ResultQueue[T]") -> None:
        """Runs a job in its thread and queues its results."""
        end: Any = _END
        try:
            queue.ticket.check()
            assert queue.job is not None
            with cancelled_by(queue.ticket.check):
                for item in queue.job(batched_model(model, self._batcher, queue.ticket)):
                    queue.put(item)
        except Stopped:
            end = Closing("the server is shutting down")
        except Exception as error:
            end = error
        finally:
            queue.ticket.end_turn()
            self._leave(queue.ticket)
            queue.finish(end)


_END: Any = object()


class _ResultQueue(Generic[T]):
    """A queue of results from a job's thread to the event loop."""

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
        self._send(item)

    def finish(self, end: Any) -> None:
        """Adds the end of the job, or its error."""
        self._send(end)

    def release(self) -> None:
        """Ends the wait of `put` after the reader has left; the job then finds that it is stopped."""
        self._room.release()

    def _send(self, item: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the event loop is closed: stop the job
            self.ticket.stopped.set()
