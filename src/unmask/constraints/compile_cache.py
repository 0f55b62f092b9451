"""Compiled constraints of a process: equal ones are compiled once, and one at a time."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from unmask.cancellation import raise_if_cancelled
from unmask.constraints.compiled import Compiled
from unmask.errors import UnmaskError

MOST_BYTES = 2**28  # of all compiled constraints that are kept
_LEAST = 2**12  # bytes that an entry counts at least, also a refusal
_WAIT = 0.05  # seconds between two looks at the cancellation of a waiting job


@dataclass(eq=False)
class _Entry:
    """A compilation: running until `done` is set; then its result, or its refusal."""

    done: threading.Event = field(default_factory=threading.Event)
    result: Compiled | UnmaskError | None = None  # None: it was cancelled
    bytes: int = _LEAST


class CompileCache:
    """Keeps results and refusals, the last used ones, up to a number of bytes.

    Jobs that ask for the same constraint wait for the first of them. If that one is cancelled,
    another one compiles. One job compiles at a time, so that the others keep the interpreter lock.

    Args:
        most: The number of bytes.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.bytes, self.compilations = 0, 0
        self._most = most
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def compiled(self, key: str, work: Callable[[], Compiled]) -> Compiled:
        """The compiled constraint of a key.

        Args:
            key: Everything that affects the result.
            work: Compiles the constraint.

        Returns:
            The kept or new result.

        Raises:
            UnmaskError: If the constraint is refused.
        """
        while True:
            with self._lock:
                entry = self._entries.get(key)
                mine = entry is None
                if entry is None:
                    entry = self._entries[key] = _Entry()
                self._entries.move_to_end(key)
            if mine:
                self._compile(key, entry, work)
            while not entry.done.wait(_WAIT):
                raise_if_cancelled()
            if isinstance(entry.result, UnmaskError):
                raise UnmaskError(str(entry.result))
            if entry.result is not None:
                return entry.result

    def _compile(self, key: str, entry: _Entry, work: Callable[[], Compiled]) -> None:
        try:
            with self._one_at_a_time():
                self.compilations += 1
                entry.result = work()
                entry.bytes = max(_LEAST, entry.result.nbytes)
        except UnmaskError as error:
            entry.result = UnmaskError(str(error))
        finally:
            with self._lock:
                self.bytes += entry.bytes
                if entry.result is None:
                    self._drop(key)
                for old in [name for name, one in self._entries.items() if one.done.is_set()]:
                    if self.bytes > self._most:
                        self._drop(old)
            entry.done.set()

    def _drop(self, key: str) -> None:
        self.bytes -= self._entries.pop(key).bytes

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        while not self._turn.acquire(timeout=_WAIT):
            raise_if_cancelled()
        try:
            yield
        finally:
            self._turn.release()


CACHE = CompileCache()
