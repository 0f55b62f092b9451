"""The row cache: tokenised rows in a memory-mapped file.

The file name is a hash of the text, the tokenizer and every option, so a change of any of them
gives another file. An unfinished file has another name and a progress file, from which a killed
tokenisation resumes.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from unmask.data.documents.read_errors import ReadErrors
from unmask.data.rows.row_counts import Place, Table, Totals
from unmask.data.rows.token_rows import TEXT, Layout, Rows
from unmask.errors import UnmaskError
from unmask.files.lock import same_file, wait_for_lock

_FORMAT = 3  # incremented when the same text and options give other rows
_PROGRESS_BLOCKS = 16  # blocks of rows between two writes of the progress file


def cache_key(options: Mapping[str, object]) -> str:
    """The cache key of these options, a hash."""
    described = json.dumps({"format": _FORMAT, **options}, sort_keys=True)
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()


def stored_rows(folder: Path, key: str, length: int, layout: Layout = TEXT) -> Rows | None:
    """The rows cached under a key; None if there are none or they are incomplete."""
    width = layout.counts + length
    data, sidecar = folder / f"{key}.rows", folder / f"{key}.json"
    try:
        facts = json.loads(sidecar.read_text(encoding="utf-8"))
        totals, dtype = _totals(facts["totals"]), np.dtype(facts["dtype"])
        if data.stat().st_size != totals.rows * width * dtype.itemsize:
            return None
        table = np.memmap(data, dtype, "r", shape=(totals.rows, width))
        return Rows(table, totals, layout)
    except (OSError, ValueError, KeyError, TypeError):
        return None


class UnfinishedRows:
    """The unfinished rows of a cache key, with the resume position and the totals so far."""

    def __init__(self, folder: Path, key: str, largest: int, resumable: bool = True) -> None:
        self._dtype = np.dtype(np.uint16 if largest < 2**16 else np.uint32)
        self._folder, self._key = folder, key
        # a process without a lock writes to a unique name, since another may write the same rows
        name = f".{key}.part" if resumable else f".writing-{uuid.uuid4().hex}"
        self._rows, self._progress = folder / name, folder / f"{name}.json"
        self.place, self.totals, self._size = Place(), Totals(), 0
        with suppress(OSError, ValueError, KeyError, TypeError):
            progress = json.loads(self._progress.read_text(encoding="utf-8"))
            if progress["size"] <= self._rows.stat().st_size:
                self.place, self.totals = Place(**progress["place"]), _totals(progress["totals"])
                self._size = int(progress["size"])

    def write(self, tables: Iterable[Table]) -> None:
        """Writes blocks of rows and their progress, and renames the finished file."""
        try:
            with self._opened() as file:
                for number, table in enumerate(tables, start=1):
                    file.write(table.astype(self._dtype).data)
                    if number % _PROGRESS_BLOCKS == 0:
                        self._save_progress(file)
                _to_disk(file)
            self._rows.replace(self._folder / f"{self._key}.rows")
            facts = {"dtype": self._dtype.name, "totals": asdict(self.totals)}
            self._replace(self._folder / f"{self._key}.json", facts)
        except Exception:  # after a kill or Ctrl-C the file stays, to be resumed
            self._rows.unlink(missing_ok=True)
            raise
        finally:
            if not self._rows.exists():
                self._progress.unlink(missing_ok=True)

    def _opened(self) -> BinaryIO:
        """The open file, truncated to the size in the progress file."""
        if not self._size:
            return self._rows.open("wb")
        os.truncate(self._rows, self._size)
        return self._rows.open("ab")

    def _save_progress(self, file: BinaryIO) -> None:
        _to_disk(file)
        place = {"pieces": self.place.pieces, "tokens": self.place.tokens}
        totals = asdict(self.place.settled(self.totals))
        self._replace(self._progress, {"size": file.tell(), "place": place, "totals": totals})

    def _replace(self, path: Path, content: dict[str, Any]) -> None:
        name = self._folder / f".writing-{uuid.uuid4().hex}"
        try:
            with name.open("w", encoding="utf-8") as file:
                file.write(json.dumps(content) + "\n")
                file.flush()
                os.fsync(file.fileno())
            name.replace(path)
        finally:
            name.unlink(missing_ok=True)


def _totals(facts: dict[str, Any]) -> Totals:
    return Totals(**facts | {"faults": ReadErrors(**facts["faults"])})


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def making(folder: Path, key: str) -> Iterator[bool]:
    """Holds the lock of a cache key and yields True; yields False if the file system has no locks.

    A write error inside, such as a full disk, becomes a one-line error.
    """
    lock = folder / f".{key}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            with lock.open("w") as file:
                has_lock = wait_for_lock(file.fileno())
                if has_lock and not same_file(file.fileno(), lock):
                    continue  # the last holder removed this lock file
                try:
                    yield has_lock
                finally:
                    lock.unlink(missing_ok=True)
                return
    except OSError as error:
        raise UnmaskError(
            f"the cache cannot be written to {folder}: {error.strerror or error}; "
            "free space there or set UNMASK_CACHE to another folder"
        ) from None
