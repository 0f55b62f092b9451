"""Micro-batch size: a search for one that fits, and the error after memory ran out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from unmask.errors import UnmaskError

T = TypeVar("T")

# Texts of out-of-memory errors without a class of their own.
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """True if an error means that memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


@contextmanager
def out_of_memory_error(rows: Callable[[], int]) -> Iterator[None]:
    """Turns an out-of-memory error into one with advice;
    `rows` returns the rows of a backward pass.
    """
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        raise UnmaskError(_advice(rows())) from error


class MicroBatch:
    """The rows of a backward pass: a fixed number, or a search for the largest that fits.

    The search varies the number of pieces of a batch: doubled until they fit, then bisected.
    """

    def __init__(self, rows: int, size: int, search: bool, say: Callable[[str], None]) -> None:
        self.rows, self.search, self.say = rows, search, say
        self.fixed = min(size or rows, rows)
        self.pieces = -(-rows // self.fixed)
        self.failed = 0  # largest number of pieces that did not fit
        self.fitted: int | None = None  # a number of pieces that fitted
        self.reported_size = 0

    @property
    def size(self) -> int:
        """The rows of the next backward pass."""
        return -(-self.rows // self.pieces) if self.search else self.fixed

    def run(self, attempt: Callable[[int], T], clear: Callable[[], None]) -> T:
        """The result of `attempt` at a size that fits, found by a search.

        Args:
            attempt: computes the gradient in micro-batches of the given size.
            clear: clears the gradient that a failed attempt left.
        """
        while True:
            try:
                result = attempt(self.size)
            except Exception as error:
                if not out_of_memory(error):
                    raise
            else:
                self._fits()
                return result
            clear()  # outside the except block, where the error no longer keeps tensors alive
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self._fails()

    def _fits(self) -> None:
        self.fitted = self.pieces
        if self.pieces - self.failed > 1:  # fewer and larger pieces may fit too
            self.pieces = (self.failed + self.pieces) // 2
        elif self.failed and self.reported_size != self.size:
            self.reported_size = self.size
            self.say(f"micro-batches of {self.size} rows fit: --training.micro-batch {self.size}")

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
            f"{rows // 2} (the result is the same), or add --auto-batch, which finds a size that fits"
        )
    return (
        "out of memory with a single row in a backward pass: choose a smaller backbone or "
        "data.length, or training.precision bf16"
    )
