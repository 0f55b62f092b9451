"""Packings: cut and join encoded documents into rows of a fixed length."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

import numpy as np

from unmask.data.documents.labels import first_token
from unmask.data.documents.pairs import source_of
from unmask.data.rows.best_fit import best_fit
from unmask.data.rows.conversations import chats
from unmask.data.rows.encode import (
    Encode,
    PackingJob,
    Piece,
    encoded_blocks,
    in_this_process,
    pieces,
    whole,
)
from unmask.data.rows.row_counts import Place, Table, Totals
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary


class TooShort(UnmaskError):
    """Raised if a text has too few tokens for one row of the packing wrap or join."""


def pack(
    documents: Iterable[str],
    tokenizer: Tokenizer,
    length: int,
    packing: str,
    totals: Totals,
    limit: int | None = None,
    place: Place | None = None,
    encode: Encode | None = None,
) -> Iterator[Table]:
    """Yields blocks of rows and adds them to `totals`.
    Packings wrap and join stop after `limit` rows.

    Packing resumes at `place`, and moves `place` to the end of each block that it yields.
    """
    packer = PACKERS[packing] if limit is None else partial(PACKERS[packing], limit=limit)
    encode = encode or in_this_process(tokenizer)
    job = PackingJob(documents, tokenizer, length, totals, place or Place(), encode)
    for table in packer(job):
        totals.add_rows(table[:, : table.shape[1] - length])
        if tokenizer.ignored_id is not None:
            totals.subtract_ignored(int((table[:, -length:] == tokenizer.ignored_id).sum()))
        yield table
    if totals.left_out and not totals.rows:
        kind = "pair fits into" if packing == "pairs" else "answer of a chat begins in"
        raise UnmaskError(f"no {kind} a row of {length} tokens: increase data.length")
    if not totals.rows:
        raise TooShort(
            f"the text is too short for one row of {length} tokens: "
            f"give more text, or set data.packing to split or pad instead of {packing} (evaluate: --packing)"
        )


def wrap(
    job: PackingJob,
    *,
    between: bool = True,
    limit: int | None = None,
) -> Iterator[Table]:
    """The paper's packing: documents joined, with EOS `between` them, and cut into chunks.

    Each chunk gets BOS and EOS. Tokens after the last full chunk are dropped.
    """
    bos, eos = _bos_and_eos(job.tokenizer.vocabulary)
    body = job.length - 2
    rest: Ids = np.empty(0, dtype=np.int64)
    made, to_skip = 0, job.place.tokens  # rows so far, tokens before the resume position
    recent: list[tuple[str, int]] = []  # (text, tokens) of the pieces that `rest` is from
    parts = islice(pieces(job.documents), job.place.pieces, None)
    for block, encodings in encoded_blocks(parts, job.encode, _texts):
        streams: list[Ids] = [rest]
        for piece, ids in zip(block, encodings, strict=True):
            streams.append(np.append(ids, eos) if between and piece.ends else ids)
            job.totals.add_text(piece.text)
        job.place.pieces += len(recent) + len(block)
        recent += zip(_texts(block), map(len, streams[1:]), strict=True)
        stream = np.concatenate(streams)
        stream, to_skip = stream[to_skip:], max(0, to_skip - len(stream))
        rows = len(stream) // body if limit is None else min(len(stream) // body, limit - made)
        rest = stream[rows * body :].copy()
        recent = _last_pieces(recent, len(rest))
        job.place.pieces -= len(recent)
        job.place.tokens = sum(count for _, count in recent) - len(rest) + to_skip
        job.place.texts = [text for text, _ in recent]
        yield _table_of_chunks(stream[: rows * body].reshape(rows, body), bos, eos)
        made += rows
        if made == limit:
            break
    _subtract_dropped(job.totals, job.tokenizer, recent, len(rest))


def pad(
    job: PackingJob,
) -> Iterator[Table]:
    """One document per row, truncated or padded to the length."""
    for texts, encodings in _documents(job):
        rows = [ids[: job.length - 2] for ids in encodings]
        for text, ids, kept in zip(texts, encodings, rows, strict=True):
            complete = len(kept) == len(ids)
            covered = len(text) if complete else job.tokenizer.covered(text, len(kept))
            job.totals.add_text(text[:covered])
        yield _padded_table(list(zip(texts, rows, strict=True)), job.length, job.tokenizer)


def split(
    job: PackingJob,
) -> Iterator[Table]:
    """One document per row; a longer document continues in further rows."""
    body = job.length - 2
    for texts, encodings in _documents(job):
        rows: list[tuple[str, Ids]] = []
        for text, ids in zip(texts, encodings, strict=True):
            starts = range(0, max(len(ids), 1), body)
            rows += [(text, ids[start : start + body]) for start in starts]
            job.totals.add_text(text)
        yield _padded_table(rows, job.length, job.tokenizer)


def windows(
    job: PackingJob,
) -> Iterator[Table]:
    """Rows without BOS and EOS: each document is cut into windows, and its last one is padded.

    A window of ignored tokens alone, such as a run of N, is left out.
    """
    for texts, encodings in _documents(job):
        tables = []
        for text, ids in zip(texts, encodings, strict=True):
            rows = -(-len(ids) // job.length)
            table = _padding(rows, job.length, job.tokenizer)
            body = np.resize(table[:, 1:], rows * job.length)  # a copy
            body[: len(ids)] = ids
            table[:, 0], table[:, 1:] = job.length, body.reshape(rows, job.length)
            table[-1, 0] -= rows * job.length - len(ids)
            read = np.count_nonzero(table[:, 1:] == job.tokenizer.ignored_id, 1) < table[:, 0]
            tables.append(table[read])
            job.totals.add_text(text)
            job.totals.add_text("N" * int(table[~read, 0].sum()), sign=-1)
        yield np.concatenate(tables)


def fit(
    job: PackingJob,
) -> Iterator[Table]:
    """Several whole documents per row, each in the fullest row with room;
    longer documents are cut.
    """
    bos, eos = _bos_and_eos(job.tokenizer.vocabulary)
    body = job.length - 1
    for texts, encodings in _documents(job):
        parts: list[Ids] = []
        for text, ids in zip(texts, encodings, strict=True):
            ended = np.append(ids, eos)
            parts += [ended[start : start + body] for start in range(0, len(ended), body)]
            job.totals.add_text(text)
        bins = best_fit([len(part) for part in parts], body)
        table = _padding(len(bins), job.length, job.tokenizer)
        for row, members in zip(table, bins, strict=True):
            content = np.concatenate([parts[member] for member in members])
            row[0], row[1], row[2 : 2 + len(content)] = 1 + len(content), bos, content
        yield table


def pairs(
    job: PackingJob,
) -> Iterator[Table]:
    """One pair per row: BOS, source, EOS, target, EOS. Pairs too long for a row are left out."""
    bos, eos = _bos_and_eos(job.tokenizer.vocabulary)
    for texts, encodings in _documents(job, _both_sides):
        table = np.full((len(texts), 2 + job.length), eos, dtype=np.int64)
        sources, targets = encodings[: len(texts)], encodings[len(texts) :]
        kept = 0
        for text, source, target in zip(texts, sources, targets, strict=True):
            given, end = len(source) + 2, len(source) + len(target) + 3
            if end > job.length:
                job.totals.left_out += 1
                continue
            row = table[kept]
            row[:3] = end, given, bos
            row[3 : 1 + given], row[2 + given : 1 + end] = source, target
            job.totals.add_text(text)
            kept += 1
        yield table[:kept]


def _texts(block: list[Piece]) -> list[str]:
    return [piece.text for piece in block]


def _both_sides(block: list[Piece]) -> list[str]:
    """The sources of all pairs, then their targets."""
    return [*map(source_of, _texts(block)), *_texts(block)]


def _documents(
    job: PackingJob, texts_of: Callable[[list[Piece]], list[str]] = _texts
) -> Iterator[tuple[list[str], list[Ids]]]:
    """Blocks of whole documents with the ids of their texts. Advances `place`."""
    parts = islice(whole(job.documents), job.place.pieces, None)
    for block, encodings in encoded_blocks(parts, job.encode, texts_of):
        job.place.pieces += len(block)
        yield _texts(block), encodings


# each yields blocks of rows, adds their text to `totals` and moves `place` to the end of each block
PACKERS: dict[str, Callable[..., Iterator[Table]]] = {
    "wrap": wrap,
    "join": partial(wrap, between=False),
    "pad": pad,
    "split": split,
    "windows": windows,
    "fit": fit,
    "pairs": pairs,
    "chats": chats,
    "packed chats": partial(chats, packed=True),
}


def _bos_and_eos(vocabulary: Vocabulary) -> tuple[int, int]:
    if vocabulary.bos_id is None or vocabulary.eos_id is None:
        raise UnmaskError("this tokenizer has no BOS or no EOS: rows need both, use another")
    return vocabulary.bos_id, vocabulary.eos_id


def _table_of_chunks(chunks: Ids, bos: int, eos: int) -> Table:
    rows, body = chunks.shape
    table = np.empty((rows, body + 3), dtype=np.int64)
    table[:, 0], table[:, 1], table[:, -1] = body + 2, bos, eos
    table[:, 2:-1] = chunks
    return table


def _padded_table(rows: list[tuple[str, Ids]], length: int, tokenizer: Tokenizer) -> Table:
    """A table of rows: BOS or class token, ids, EOS and padding.
    Padding is not counted as valid.
    """
    bos, eos = _bos_and_eos(tokenizer.vocabulary)
    table = _padding(len(rows), length, tokenizer)
    for row, (document, ids) in zip(table, rows, strict=True):
        row[0] = len(ids) + 2
        row[1], row[2 + len(ids)] = first_token(document, tokenizer.labels, bos), eos
        row[2 : 2 + len(ids)] = ids
    return table


def _padding(rows: int, length: int, tokenizer: Tokenizer) -> Table:
    """A table of rows of padding."""
    pad_id = tokenizer.vocabulary.pad_id
    if pad_id is None:
        pad_id = _bos_and_eos(tokenizer.vocabulary)[1]  # EOS, never MASK
    return np.full((rows, 1 + length), pad_id, dtype=np.int64)


def _last_pieces(recent: list[tuple[str, int]], tokens: int) -> list[tuple[str, int]]:
    """The fewest last items of `recent` that have at least `tokens` tokens together."""
    first, held = len(recent), 0
    while held < tokens:
        first -= 1
        held += recent[first][1]
    return recent[first:]


def _subtract_dropped(
    totals: Totals, tokenizer: Tokenizer, recent: list[tuple[str, int]], dropped: int
) -> None:
    """Subtracts the text of the last `dropped` tokens from the totals."""
    kept = sum(count for _, count in recent) - dropped
    for text, count in recent:
        covered = len(text) if kept >= count else tokenizer.covered(text, kept) if kept else 0
        totals.add_text(text[covered:], sign=-1)
        kept = max(kept - count, 0)
