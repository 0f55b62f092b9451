"""Encodes documents block by block, in this process or in several."""

import os
import re
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

from unmask.data.rows.row_counts import Place, Totals
from unmask.data.tokenizers.kinds import parse_tokenizer
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.errors import UnmaskError, UnmaskWarning
from unmask.runtime.cores import available_cores

Encode = Callable[[Iterable[list[str]]], Iterator[list[Ids]]]

_BLOCK = 4_000_000  # characters of a block
_TEXTS = 4096  # most texts of a block
_PIECE = 1_000_000  # characters; a longer document is encoded in pieces
_AHEAD = 2  # blocks per worker that are submitted before the oldest result is awaited
# No token spans a word and the space after it, so a cut there changes no token.
_CUT = re.compile(r"(?<=\S)(?= \S)")


@dataclass(frozen=True)
class Piece:
    """A document or a part of it."""

    text: str
    ends: bool  # True if it is the last piece of its document


@dataclass(frozen=True)
class PackingJob:
    """Documents to pack into rows of `length` tokens, from `place` on."""

    documents: Iterable[str]
    tokenizer: Tokenizer
    length: int
    totals: Totals
    place: Place
    encode: Encode


def whole(documents: Iterable[str]) -> Iterator[Piece]:
    """One piece per document."""
    return (Piece(document, True) for document in documents)


def pieces(documents: Iterable[str]) -> Iterator[Piece]:
    """Pieces of documents. Long documents are cut between words, which bounds memory."""
    for document in documents:
        start = 0
        while len(document) - start > _PIECE:
            cut = _CUT.search(document, start + _PIECE)
            if cut is None:
                break
            yield Piece(document[start : cut.start()], False)
            start = cut.start()
        yield Piece(document[start:], True)


def blocks(parts: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Blocks of pieces, large enough to use the threads of `encode_batch`."""
    block: list[Piece] = []
    characters = 0
    for piece in parts:
        block.append(piece)
        characters += len(piece.text)
        if characters >= _BLOCK or len(block) >= _TEXTS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def encoded_blocks(
    parts: Iterable[Piece], encode: Encode, texts_of: Callable[[list[Piece]], list[str]]
) -> Iterator[tuple[list[Piece], list[Ids]]]:
    """Blocks of pieces in order, each with the ids of the texts that `texts_of` makes of it."""
    sent: deque[list[Piece]] = deque()

    def texts() -> Iterator[list[str]]:
        for block in blocks(parts):
            sent.append(block)
            yield texts_of(block)

    for ids in encode(texts()):
        yield sent.popleft(), ids


def in_this_process(tokenizer: Tokenizer) -> Encode:
    """An encoder that runs in this process, one block at a time."""
    return lambda texts: map(tokenizer.encode_batch, texts)


@contextmanager
def encoding(tokenizer: Tokenizer, workers: int) -> Iterator[Encode]:
    """An encoder on `workers` processes (0: one per core). The ids do not depend on `workers`."""
    workers = workers or available_cores()
    pool = _pool(tokenizer, workers) if workers > 1 else None
    if pool is None:
        yield in_this_process(tokenizer)
        return
    with pool as executor:

        def encode(texts: Iterable[list[str]]) -> Iterator[list[Ids]]:
            waiting: deque[Future[list[Ids]]] = deque()
            for block in texts:
                waiting.append(executor.submit(_encode, block))
                if len(waiting) > _AHEAD * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

        try:
            yield encode
        except BrokenProcessPool:
            raise UnmaskError(
                "a tokenising process died: lower data.workers if memory ran out; in a script, "
                'call unmask under if __name__ == "__main__":'
            ) from None
        finally:
            executor.shutdown(cancel_futures=True)


def _pool(tokenizer: Tokenizer, workers: int) -> ProcessPoolExecutor | None:
    """A pool of spawned processes; None, with a warning, if the system has no semaphores.

    A fork of a process with threads may hang, so the processes are spawned.
    """
    try:
        return ProcessPoolExecutor(workers, get_context("spawn"), _begin, (tokenizer.files(),))
    except (OSError, ImportError, NotImplementedError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        warnings.warn(
            f"tokenising with one process: several processes need semaphores in /dev/shm ({reason})",
            UnmaskWarning,
            stacklevel=2,
        )
        return None


_tokenizer: list[Tokenizer] = []  # the tokenizer of a worker process


def _begin(files: dict[str, str]) -> None:
    """Initialises a worker process. Its tokenizer uses one thread, since there are many workers."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tokenizer.append(parse_tokenizer(files))
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """Ends a worker process when its parent dies; otherwise it would wait for work forever."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _encode(texts: list[str]) -> list[Ids]:
    return _tokenizer[0].encode_batch(texts)
