"""Network calls of many jobs, answered together: each as it would be answered alone."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from unmask.backbones.layers.packed_batch import Call, filled
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import Method

# tokens in one pass: beyond that a CPU is no faster, because activations leave its caches
MOST_TOKENS = {"cpu": 512, "cuda": 1 << 16, "mps": 1 << 14}
FEW_TOKENS = 1 << 14  # on a device that nobody has measured
PATIENCE = 0.03  # seconds that a job waits for its turn: another may compute for long


class Stopped(BaseException):
    """A job is to end: nobody waits for it any more."""


class Ticket:
    """The right of a job to ask for network calls, until it is stopped, and to compute between them.

    Whoever computes does so in turns: threads that want the interpreter all at once, for an operation
    of microseconds each, mostly wait for one another, and the networks wait with them.
    """

    def __init__(self, turns: threading.Semaphore) -> None:
        self.stopped = threading.Event()
        self._turns, self._has_turn = turns, False

    def take_turn(self) -> None:
        """Waits for those who compute, though not for long."""
        self._has_turn = self._turns.acquire(timeout=PATIENCE)

    def end_turn(self) -> None:
        """Lets another compute: this job waits."""
        if self._has_turn:
            self._has_turn = False
            self._turns.release()

    def check(self) -> None:
        """Ends the job that asks, if it is stopped."""
        if self.stopped.is_set():
            raise Stopped


@dataclass(eq=False)
class BatchItem:
    """A call of a network, and where the answer goes; `alone` answers what knows no company."""

    ticket: Ticket
    method: Method
    tokens: int
    call: Call | None
    alone: Callable[[], Tensor]
    answer: "Future[Tensor]" = field(default_factory=Future)

    @property
    def kind(self) -> tuple[int, ...]:
        """Questions of one kind go together."""
        return id(self.method), self.call is None, self.call is not None and self.call.at is None


@torch.inference_mode()
def answer(questions: Sequence[BatchItem]) -> None:
    """Answers all questions in one pass; if that fails, each by itself, so that only its own fault fails it."""
    calls = [question.call for question in questions if question.call is not None]
    method = questions[0].method
    try:
        with method.arithmetic():
            found = passed(method, calls) if calls else [questions[0].alone()]
        answered = list(zip(questions, found, strict=True))
    except Exception as error:
        if len(questions) == 1:
            questions[0].answer.set_exception(error)
            return
        for question in questions:
            answer([question])
        return
    for question, features in answered:
        question.answer.set_result(features)


@dataclass
class Counts:
    """What has been computed so far."""

    passes: int = 0  # of a network
    calls: int = 0  # that they answered
    tokens: int = 0
    seconds: float = 0.0  # spent in them, by all workers


class Batcher:
    """Workers that take what is pending, as much as goes together, and answer it in one pass.

    On a CPU each worker computes with one thread: two passes side by side are faster than one pass on
    two threads, and the bits of a product depend on how many threads share it.
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
        """Calls that wait for a worker."""
        return len(self._pending)

    def ask(self, question: BatchItem) -> Tensor:
        """Waits for the answer, or raises Stopped as soon as the job is stopped."""
        with self._changed:
            question.ticket.check()
            if self._closed:
                raise Stopped
            self._pending.append(question)
            self._changed.notify()
        question.ticket.end_turn()
        answer = question.answer.result()
        question.ticket.take_turn()
        return answer

    def stop(self, ticket: Ticket) -> None:
        """Lets a job end where it waits, or at its next call."""
        with self._changed:
            ticket.stopped.set()
            mine = [question for question in self._pending if question.ticket is ticket]
            for question in mine:
                self._pending.remove(question)
                question.answer.set_exception(Stopped())

    def close(self) -> None:
        """Ends the workers; who still waits is stopped."""
        with self._changed:
            self._closed = True
            left, self._pending = self._pending, deque()
            self._changed.notify_all()
        for question in left:
            question.answer.set_exception(Stopped())
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while taken := self._take():
            start = time.perf_counter()
            answer(taken)
            with self._changed:
                self.counts.passes += 1
                self.counts.calls += len(taken)
                self.counts.tokens += sum(question.tokens for question in taken)
                self.counts.seconds += time.perf_counter() - start

    def _take(self) -> list[BatchItem]:
        """The oldest question and what goes with it, shared fairly with workers that are idle too."""
        with self._changed:
            self._idle += 1
            while not self._pending and not self._closed:
                self._changed.wait()
            taken = [] if self._closed else company(self._pending, self._idle)
            self._idle -= 1
        return taken


def company(pending: deque[BatchItem], workers: int) -> list[BatchItem]:
    """Takes the oldest question out of those pending, and others of its model up to a worker's share."""
    first = pending.popleft()
    if first.call is None:
        return [first]
    others = [one for one in pending if one.kind == first.kind]
    total = first.tokens + sum(one.tokens for one in others)
    most = MOST_TOKENS.get(first.method.device.type, FEW_TOKENS)
    room = min(most, -(-total // workers)) - first.tokens
    taken = [first]
    for one in others:
        if one.tokens <= room:
            room -= one.tokens
            taken.append(one)
            pending.remove(one)
    return taken


def passed(method: Method, calls: Sequence[Call]) -> list[Tensor]:
    """The features of all calls, or log x_theta where places are asked for: the head is shared too."""
    features = method.backbone.together(calls)
    if calls[0].at is None:
        return features
    places = [len(part) for part in features]
    log_mean = cast(MaskedDiffusion, method).log_mean
    return list(log_mean(filled(torch.cat(features)))[: sum(places)].split(places))
