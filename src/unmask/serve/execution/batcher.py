"""Batches the network calls of several jobs into one pass,
with the same results as separate calls.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from unmask.backbones.layers.attention import Call
from unmask.backbones.layers.packed_batch import pad_rows
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import Method

# Token budget of a pass. Larger passes are no faster on a CPU: activations exceed its caches.
MOST_TOKENS = {"cpu": 512, "cuda": 1 << 16, "mps": 1 << 14}
FEW_TOKENS = 1 << 14  # token budget of other devices, not measured
# Seconds that a job waits for its turn. It then computes without one, because the turn of another
# job may take long.
PATIENCE = 0.03
SLICE = 0.002  # seconds that a job with a constraint computes before it gives way


def most_tokens(method: Method) -> int:
    """The token budget of a pass on the method's device."""
    return MOST_TOKENS.get(method.device.type, FEW_TOKENS)


class Stopped(BaseException):
    """Ends a job whose client disconnected or whose server shuts down."""


class Ticket:
    """The turn of a job to compute, and its stop flag.

    Between their network calls, jobs compute in turns, a few at a time. Otherwise many threads with
    operations of microseconds would contend for the interpreter lock and delay the network passes.
    """

    def __init__(
        self,
        turns: threading.Semaphore,
        constrained: bool = False,
        pause: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.constrained = constrained  # True: the job compiles a constraint
        self._pause, self._computed = pause, 0.0
        self.stopped = threading.Event()
        self.item: BatchItem | None = None  # the pending network call
        self.running = False  # True while a thread runs the job
        self.progress = time.monotonic()  # of the last network call or result
        self._turns, self._has_turn = turns, False

    def take_turn(self) -> None:
        """Waits for a turn. After `PATIENCE` seconds the job continues without one."""
        self._has_turn = self._turns.acquire(timeout=PATIENCE)

    def end_turn(self) -> None:
        """Gives the turn to another job."""
        if self._has_turn:
            self._has_turn = False
            self._turns.release()

    def check(self) -> None:
        """Raises `Stopped` if the job is stopped. A job with a constraint gives way to others here.

        After each few milliseconds that its thread has computed, it pauses for `pause` times as long.
        """
        if self.constrained:
            computed = time.thread_time() - self._computed
            if computed > SLICE:
                self.stopped.wait(computed * self._pause())
                self._computed += computed
        if self.stopped.is_set():
            raise Stopped


@dataclass(eq=False)
class BatchItem:
    """A pending network call and the future of its result.

    `call` can be packed with others; if it is None, `alone` computes the result.
    """

    ticket: Ticket
    method: Method
    tokens: int
    call: Call | None
    alone: Callable[[], Tensor]
    future: "Future[Tensor]" = field(default_factory=Future)

    def finish(self, result: Tensor | Exception) -> None:
        """Sets the result, or the error of the call; a stopped job does not wait for either."""
        if not self.future.set_running_or_notify_cancel():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)

    @property
    def kind(self) -> tuple[int, ...]:
        """A key for grouping: items with equal keys can share a pass."""
        return id(self.method), self.call is None, self.call is not None and self.call.at is None


_pass = threading.local()  # items: those of the pass that a worker computes


def end_stopped_pass(*_: object) -> None:
    """Raises `Stopped` in a worker whose pass has no job left;
    a hook of the blocks of a network.
    """
    items = getattr(_pass, "items", ())
    if items and all(item.ticket.stopped.is_set() for item in items):
        raise Stopped


@torch.inference_mode()
def compute(items: Sequence[BatchItem]) -> None:
    """Computes all items in one pass and sets their results.

    If the pass fails, each item is computed alone, so that an error affects its own job only. A
    pass whose jobs are all stopped ends at the next block of the network.
    """
    _pass.items = items
    calls = [item.call for item in items if item.call is not None]
    method = items[0].method
    try:
        with method.arithmetic():
            results = packed_pass(method, calls) if calls else [items[0].alone()]
        computed = list(zip(items, results, strict=True))
    except Exception as error:
        if len(items) == 1:
            items[0].finish(error)
            return
        for item in items:
            compute([item])
        return
    except Stopped:
        return  # no job waits for a result
    for item, result in computed:
        item.finish(result)


@dataclass
class Counts:
    """Counters of the computation so far."""

    passes: int = 0  # network passes
    calls: int = 0  # network calls in them
    tokens: int = 0
    seconds: float = 0.0  # in passes, summed over workers


class Batcher:
    """Worker threads, each of which packs pending network calls of one model into a pass.

    On a CPU each worker computes with one thread. Two passes on one thread each are faster than one
    pass on two threads. The fixed number also keeps results reproducible, because the rounding of a
    matrix product depends on the number of threads.
    """

    def __init__(self, workers: int) -> None:
        self.counts = Counts()
        self._pending: deque[BatchItem] = deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"network {number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pending(self) -> int:
        """The number of network calls that wait for a worker."""
        return len(self._pending)

    def result(self, item: BatchItem) -> Tensor:
        """The result of an item; raises `Stopped` as soon as its job is stopped."""
        ticket = item.ticket
        with self._changed:
            ticket.check()
            if self._closed:
                raise Stopped
            ticket.item = item
            self._pending.append(item)
            self._changed.notify()
        ticket.end_turn()
        try:
            result = item.future.result()
        except CancelledError:
            raise Stopped from None
        ticket.item, ticket.progress = None, time.monotonic()
        ticket.take_turn()
        return result

    def stop(self, ticket: Ticket) -> None:
        """Stops a job: its pending call, or else its next one, raises `Stopped`.

        The job does not wait for a pass that is being computed.
        """
        with self._changed:
            ticket.stopped.set()
            if (item := ticket.item) is not None:
                item.future.cancel()
                if item in self._pending:
                    self._pending.remove(item)

    def close(self) -> None:
        """Stops the workers and all waiting jobs."""
        with self._changed:
            self._closed = True
            left, self._pending = self._pending, deque()
            self._changed.notify_all()
        for item in left:
            item.future.cancel()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while taken := self._take():
            start = time.perf_counter()
            compute(taken)
            with self._changed:
                self.counts.passes += 1
                self.counts.calls += len(taken)
                self.counts.tokens += sum(item.tokens for item in taken)
                self.counts.seconds += time.perf_counter() - start

    def _take(self) -> list[BatchItem]:
        """Waits for items and pops those of the next pass; none after `close`."""
        with self._changed:
            self._idle += 1
            while not self._pending and not self._closed:
                self._changed.wait()
            taken = [] if self._closed else next_batch(self._pending, self._idle)
            self._idle -= 1
        return taken


def next_batch(pending: deque[BatchItem], workers: int) -> list[BatchItem]:
    """Pops the oldest item and more items of its kind, up to the token budget.

    If other workers are idle, the budget is at most an even share of the tokens of that kind.
    """
    first = pending.popleft()
    if first.call is None:
        return [first]
    others = [one for one in pending if one.kind == first.kind]
    total = first.tokens + sum(one.tokens for one in others)
    room = min(most_tokens(first.method), -(-total // workers)) - first.tokens
    taken = [first]
    for one in others:
        if one.tokens <= room:
            room -= one.tokens
            taken.append(one)
            pending.remove(one)
    return taken


def packed_pass(method: Method, calls: Sequence[Call]) -> list[Tensor]:
    """The features of each call, or log x_theta at the chosen positions if the calls have `at`."""
    features = method.backbone.together(calls)
    if calls[0].at is None:
        return features
    lengths = [len(part) for part in features]
    log_mean = cast(MaskedDiffusion, method).log_mean
    return list(log_mean(pad_rows(torch.cat(features)))[: sum(lengths)].split(lengths))
