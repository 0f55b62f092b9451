"""Runs concurrent jobs, each in its own thread, with batched network calls."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, TypeVar

import torch

from unmask.cancellation import cancelled_by
from unmask.errors import unknown
from unmask.model import Model
from unmask.runtime.cores import available_cores
from unmask.serve.execution.batched_model import batched_model
from unmask.serve.execution.batcher import (
    Batcher,
    Counts,
    Stopped,
    Ticket,
    end_stopped_pass,
)
from unmask.serve.execution.result_queue import END, ResultQueue
from unmask.serve.limits import check_capacity

T = TypeVar("T")
STALL = 1.0  # seconds that a stopped job may take to end
# Seconds for which a thread keeps the interpreter lock while another one waits for it. Each operation of
# torch gives the lock back, so beside a compilation in Python a network pass waits this long for each.
SWITCH = 0.0005
SHARE = 0.25  # of one core's time, for jobs with constraints while other jobs run


class Busy(Exception):
    """The engine is full."""


class Closing(Exception):
    """The engine shuts down: it refuses new jobs and stops running ones."""


class Engine:
    """Runs jobs on models.

    Concurrent jobs do not change a result. On a CPU in float32 it is equal to the bit.

    A job with a constraint may compile for seconds and, while it samples, compute more than the
    network. Such jobs have threads of their own, take at most half of the places, and compute little
    while other jobs run, so that these hardly wait for them.

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
        self._constrained_limit = max(1, self._limit // 2)
        self._queues: dict[Ticket, ResultQueue[Any]] = {}  # of running and waiting jobs
        self._progress = time.monotonic()  # the last end of a job
        self._lock = threading.Lock()
        self._closing = False
        on_cpu = all(model.device.type == "cpu" for model in self.models.values())
        self._threads_before = torch.get_num_threads()
        if on_cpu:  # one thread per worker: see the batcher
            torch.set_num_threads(1)
        self._switch_before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        self._batcher = Batcher(workers or (available_cores() if on_cpu else 1))
        self._pools = {
            False: ThreadPoolExecutor(active, "job"),
            True: ThreadPoolExecutor(max(1, active // 2), "constrained job"),
        }
        self._turns = threading.Semaphore(1 if on_cpu else active)
        self._hooks = [
            block.register_forward_pre_hook(end_stopped_pass)
            for model in self.models.values()
            for name in ("blocks", "encoder")
            for block in getattr(model.method.backbone, name, ())
        ]

    async def run(
        self, model: str, job: Callable[[Model], Iterator[T]], constrained: bool = False
    ) -> AsyncGenerator[T, None]:
        """The results of a job, as it makes them.

        Closing the iterator stops the job at its next network call, or at once if it has not begun.

        Args:
            model: the name of the model.
            job: the work; it gets the model and yields its results.
            constrained: True if the job compiles a constraint.
        """
        if model not in self.models:
            raise unknown("model", model, self.models)
        queue = self._admit(job, constrained)
        limit = None if self.timeout is None else time.monotonic() + self.timeout
        try:
            future = self._pools[constrained].submit(self._work, self.models[model], queue)
        except RuntimeError:
            self._leave(queue.ticket)
            queue.ticket.stopped.set()  # the pool may run the job later
            raise Busy(
                "the server cannot start a thread for the request: try again later"
            ) from None
        try:
            while (item := await queue.next(limit)) is not END:
                yield item
        finally:
            self._batcher.stop(queue.ticket)
            queue.release()
            if future.cancel():
                queue.job = None  # frees its memory: the pool keeps the cancelled item for a while
                self._leave(queue.ticket)

    async def one(
        self, model: str, job: Callable[[Model], Iterator[T]], constrained: bool = False
    ) -> T:
        """The first result of a job, which is then stopped; arguments as for `run`."""
        async with aclosing(self.run(model, job, constrained)) as results:
            return await anext(results)

    @property
    def jobs(self) -> int:
        """The number of running and waiting jobs."""
        return len(self._queues)

    @property
    def running(self) -> int:
        """The number of jobs that have a thread."""
        return sum(ticket.running for ticket in list(self._queues))

    @property
    def stopped(self) -> int:
        """The number of running jobs that are stopped and have not ended yet."""
        return sum(ticket.running and ticket.stopped.is_set() for ticket in list(self._queues))

    @property
    def idle_seconds(self) -> float:
        """Seconds since a running job last made progress or ended; 0 if no job runs."""
        times = [ticket.progress for ticket in list(self._queues) if ticket.running]
        return time.monotonic() - max(*times, self._progress) if times else 0.0

    @property
    def stalled(self) -> bool:
        """True if jobs run and none has made progress for longer than the time limit of a job."""
        return self.timeout is not None and self.idle_seconds > self.timeout + STALL

    @property
    def full(self) -> bool:
        """True if another job would be refused."""
        return self.jobs >= self._limit

    @property
    def ready(self) -> bool:
        """True if another job would be accepted."""
        return not (self.full or self.closing or self.stalled)

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
        """Refuses new jobs, waits up to `grace` seconds for the running ones,
        and stops the rest.
        """
        self._closing = True
        end = time.monotonic() + grace
        while self._queues and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self._stop_all()

    def close(self) -> None:
        """Stops all jobs and threads."""
        self._closing = True
        self._stop_all()
        self._batcher.close()
        for pool in self._pools.values():
            pool.shutdown()
        for hook in self._hooks:
            hook.remove()
        torch.set_num_threads(self._threads_before)
        sys.setswitchinterval(self._switch_before)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _admit(self, job: Callable[[Model], Iterator[T]], constrained: bool) -> ResultQueue[T]:
        with self._lock:
            if self._closing:
                raise _closing()
            if self.full:
                raise Busy(f"the server is full, with {self.jobs} requests: try again later")
            others = sum(ticket.constrained for ticket in self._queues)
            if constrained and others >= self._constrained_limit:
                raise Busy(f"the server has {others} requests with constraints: try again later")
            ticket = Ticket(self._turns, constrained, self._pause)
            queue = ResultQueue[T](asyncio.get_running_loop(), ticket, job)
            self._queues[ticket] = queue
            return queue

    def _pause(self) -> float:
        """Seconds of pause for each second that a job with a constraint computes.

        Beside other jobs, all jobs with constraints together compute for `SHARE` of the time.
        """
        running = [ticket.constrained for ticket in list(self._queues) if ticket.running]
        return 0.0 if all(running) else sum(running) / SHARE - 1

    def _leave(self, ticket: Ticket) -> None:
        with self._lock:
            self._queues.pop(ticket, None)
        if ticket.running:
            self._progress = time.monotonic()

    def _stop_all(self) -> None:
        with self._lock:
            queues = list(self._queues.values())
        for queue in queues:
            self._batcher.stop(queue.ticket)
            queue.release()
            queue.finish(_closing())  # the reader does not wait for the end of the job's thread

    def _work(self, model: Model, queue: ResultQueue[T]) -> None:
        """Runs a job in its thread and queues its results."""
        end: Any = END
        try:
            queue.ticket.check()
            queue.ticket.running, queue.ticket.progress = True, time.monotonic()
            assert queue.job is not None
            with cancelled_by(queue.ticket.check):
                for item in queue.job(batched_model(model, self._batcher, queue.ticket)):
                    queue.put(item)
        except Stopped:
            end = _closing()
        except Exception as error:
            end = error
        finally:
            queue.ticket.end_turn()
            self._leave(queue.ticket)
            queue.finish(end)


def _closing() -> Closing:
    return Closing("the server is shutting down")
