"""Documents in blocks of text, and the ids of each block, from this process or from several."""

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

from unmask.data.tokenizers.kinds import parse_tokenizer
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.errors import UnmaskError, UnmaskWarning
from unmask.runtime.cores import available_cores

Encode = Callable[[Iterable[list[str]]], Iterator[list[Ids]]]

_BLOCK = 4_000_000  # characters encoded at a time,
_TEXTS = 4096  # in at most so many texts
_PIECE = 1_000_000  # characters beyond which a document is encoded in pieces
_AHEAD = 2  # blocks for each process that wait for their turn
# No tokenizer joins a word and the space behind it, so a cut there changes no token.
_CUT = re.compile(r"(?<=\S)(?= \S)")


@dataclass(frozen=True)
class Piece:
    """A document, or a part of it."""

    text: str
    ends: bool  # whether the document ends here


def whole(documents: Iterable[str]) -> Iterator[Piece]:
    """Documents as they are."""
    return (Piece(document, True) for document in documents)


def pieces(documents: Iterable[str]) -> Iterator[Piece]:
    """Documents, long ones cut before a word, so that memory stays bounded."""
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
    """Pieces in blocks that are worth the threads of `encode_batch`."""
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
    """Blocks of pieces with the ids of their texts, in order."""
    sent: deque[list[Piece]] = deque()

    def texts() -> Iterator[list[str]]:
        for block in blocks(parts):
            sent.append(block)
            yield texts_of(block)

    for ids in encode(texts()):
        yield sent.popleft(), ids


def in_this_process(tokenizer: Tokenizer) -> Encode:
    """Blocks encoded as they are asked for."""
    return lambda texts: map(tokenizer.encode_batch, texts)


@contextmanager
def encoding(tokenizer: Tokenizer, workers: int) -> Iterator[Encode]:
    """Encodes blocks in `workers` processes (0: one a core), with the ids that one would give."""
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
                "a process that tokenises ended early: lower data.workers if memory ran out, and let "
                'a script of your own begin under if __name__ == "__main__":'
            ) from None
        finally:
            executor.shutdown(cancel_futures=True)


def _pool(tokenizer: Tokenizer, workers: int) -> ProcessPoolExecutor | None:
    """Processes, spawned since a fork of one with threads may hang; None where semaphores are missing."""
    try:
        return ProcessPoolExecutor(workers, get_context("spawn"), _begin, (tokenizer.files(),))
    except (OSError, ImportError, NotImplementedError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        warnings.warn(
            f"one process tokenises: others need semaphores, which /dev/shm holds ({reason})",
            UnmaskWarning,
            stacklevel=2,
        )
        return None


_tokenizer: list[Tokenizer] = []  # of a worker


def _begin(files: dict[str, str]) -> None:
    """A worker's tokenizer; one thread, since there are many workers."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tokenizer.append(parse_tokenizer(files))
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _encode(texts: list[str]) -> list[Ids]:
    return _tokenizer[0].encode_batch(texts)
