"""Out of memory: one line that says what to change, or a micro-batch that fits, found by trying."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from unmask.errors import UnmaskError

T = TypeVar("T")

# How the devices whose errors have no class of their own say it.
_SAID = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """Whether memory is what was lacking."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _SAID)


@contextmanager
def memory_told(rows: Callable[[], int]) -> Iterator[None]:
    """Memory that ran out as an error that the user can mend; `rows` were in a backward pass."""
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        raise UnmaskError(_advice(rows())) from error


class MicroBatch:
    """How many rows a backward pass takes: as set, or as many as fit, searched for step by step.

    The search counts pieces of the batch: doubled until they fit, then halved in between.
    """

    def __init__(self, rows: int, size: int, search: bool, say: Callable[[str], None]) -> None:
        self.rows, self.search, self.say = rows, search, say
        self.fixed = min(size or rows, rows)
        self.pieces = -(-rows // self.fixed)
        self.failed = 0  # so many pieces did not fit
        self.fitted: int | None = None  # so many did
        self.told = 0

    @property
    def size(self) -> int:
        return -(-self.rows // self.pieces) if self.search else self.fixed

    def run(self, attempt: Callable[[int], T], forget: Callable[[], None]) -> T:
        """The outcome of `attempt` at a size that fits; after one that did not, `forget` its traces."""
        if not self.search:
            return attempt(self.fixed)
        while True:
            try:
                done = attempt(self.size)
            except Exception as error:
                if not out_of_memory(error):
                    raise
            else:
                self._fits()
                return done
            forget()  # only here, where the error no longer holds the tensors that filled the memory
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self._fails()

    def _fits(self) -> None:
        self.fitted = self.pieces
        if self.pieces - self.failed > 1:  # fewer and larger pieces may fit too
            self.pieces = (self.failed + self.pieces) // 2
        elif self.failed and self.told != self.size:
            self.told = self.size
            self.say(f"micro-batches of {self.size} rows fit: --training.micro_batch {self.size}")

    def _fails(self) -> None:
        if self.size == 1:
            raise UnmaskError(_advice(1))
        self.failed = self.pieces
        if self.fitted is None or self.fitted <= self.failed:
            self.fitted = None
            self.pieces = min(2 * self.pieces, self.rows)
        else:
            self.pieces = (self.failed + self.fitted + 1) // 2


def _advice(rows: int) -> str:
    if rows > 1:
        return (
            f"out of memory with {rows} rows in a backward pass: set training.micro_batch to "
            f"{rows // 2} (the result is the same), or let --auto-batch find what fits"
        )
    return (
        "out of memory with a single row in a backward pass: choose a smaller backbone or "
        "data.length, or training.precision bf16"
    )
