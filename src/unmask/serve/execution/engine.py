"""Jobs side by side: each in a thread of its own, their network calls answered together."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import torch

from unmask.errors import unknown
from unmask.model import Model
from unmask.runtime.cores import available_cores
from unmask.samplers.core.token_sampler import cancellation
from unmask.serve.execution.batched_model import sharing
from unmask.serve.execution.batcher import Batcher, Counts, Stopped, Ticket
from unmask.serve.limits import check_capacity

T = TypeVar("T")
AHEAD = 32  # results that a job may be ahead of their reader


class Busy(Exception):
    """There are as many jobs as the engine takes."""


class Closing(Exception):
    """The engine shuts down and takes no more jobs, or has ended this one."""


class TimedOut(Exception):
    """The job took longer than a job may."""


class Engine:
    """Runs jobs over models: `active` of them at a time, `waiting` more in line, then Busy.

    A result is what the job gives alone, to the bit on a CPU in float32, whatever runs beside it.
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
        if on_cpu:  # one a worker: see Batcher
            torch.set_num_threads(1)
        self._batcher = Batcher(workers or (available_cores() if on_cpu else 1))
        self._pool = ThreadPoolExecutor(active, "job")
        self._turns = threading.Semaphore(1 if on_cpu else active)

    async def run(self, model: str, job: Callable[[Model], Iterator[T]]) -> AsyncGenerator[T, None]:
        """What the job gives, as it gives it; closing the iterator ends the job at its next network call.

        A job that has not begun gives its place up at once.
        """
        if model not in self.models:
            raise unknown("model", model, self.models)
        line = _Line[T](asyncio.get_running_loop(), self._admit(), job)
        limit = None if self.timeout is None else time.monotonic() + self.timeout
        begun = self._pool.submit(self._work, self.models[model], line)
        try:
            while (item := await line.next(limit)) is not _END:
                yield item
        finally:
            self._batcher.stop(line.ticket)
            line.let_go()
            if begun.cancel():
                line.job = None  # the pool keeps the line until a thread comes to it
                self._leave(line.ticket)

    async def one(self, model: str, job: Callable[[Model], Iterator[T]]) -> T:
        """The first result of a job, which is all that is wanted of it."""
        async with aclosing(self.run(model, job)) as results:
            return await anext(results)

    @property
    def jobs(self) -> int:
        """How many there are, waiting ones included."""
        return len(self._tickets)

    @property
    def full(self) -> bool:
        """Whether another job would be refused."""
        return self.jobs >= self._limit

    @property
    def counts(self) -> Counts:
        """What the networks have computed."""
        return self._batcher.counts

    @property
    def pending(self) -> int:
        """Network calls that wait for a worker."""
        return self._batcher.pending

    @property
    def closing(self) -> bool:
        """Whether jobs are no longer taken."""
        return self._closing

    async def drain(self, grace: float) -> None:
        """Takes no more jobs, lets those that are there finish within `grace` seconds, and ends the rest."""
        self._closing = True
        end = time.monotonic() + grace
        while self._tickets and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self._stop_all()

    def close(self) -> None:
        """Ends all jobs and threads."""
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
                raise Busy(f"{self.jobs} requests are being answered or wait: try again later")
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

    def _work(self, model: Model, line: "_Line[T]") -> None:
        """In a thread of the job's own, from its start to its end."""
        end: Any = _END
        asked = cancellation.set(line.ticket.check)
        try:
            line.ticket.check()
            assert line.job is not None
            for item in line.job(sharing(model, self._batcher, line.ticket)):
                line.put(item)
        except Stopped:
            end = Closing("the server is shutting down")
        except Exception as error:
            end = error
        finally:
            cancellation.reset(asked)
            line.ticket.end_turn()
            self._leave(line.ticket)
            line.finish(end)


_END: Any = object()


class _Line(Generic[T]):
    """From a job's thread to the loop where its results are awaited."""

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
        """The next result; raises what the job raised."""
        wait = None if limit is None else max(0.0, limit - time.monotonic())
        try:
            async with asyncio.timeout(wait):  # wait_for can lose a cancellation
                item = await self._items.get()
        except TimeoutError:
            raise TimedOut("the request took too long: ask for less") from None
        self._room.release()
        if isinstance(item, Exception):
            raise item
        return item

    def put(self, item: T) -> None:
        """Hands a result over; waits while the reader is far behind."""
        if not self._room.acquire(blocking=False):
            self.ticket.end_turn()
            self._room.acquire()
        self.ticket.check()
        self._send(item)

    def finish(self, end: Any) -> None:
        """The last word of the job."""
        self._send(end)

    def let_go(self) -> None:
        """The reader has left: nobody need wait for it."""
        self._room.release()

    def _send(self, item: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the loop is closed, so nobody listens
            self.ticket.stopped.set()
