"""Rows tokenised once and kept in a file that is mapped into memory.

The name of the file is a hash of the text, the tokenizer and every option, so a cache that does
not belong is never found. It appears under that name only when it is whole.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

from unmask.data.packing import Table, Totals
from unmask.data.rows import TEXT, Layout, Rows
from unmask.errors import UnmaskError

_FORMAT = 1  # raised when the same text and options would give other rows


def cache_folder(folder: str = "") -> Path:
    """Where caches live: the folder given, or $UNMASK_CACHE, or ~/.cache/unmask."""
    return Path(folder or os.environ.get("UNMASK_CACHE") or "~/.cache/unmask").expanduser()


def cache_key(options: Mapping[str, object]) -> str:
    """The name of the cache made with these options."""
    described = json.dumps({"format": _FORMAT, **options}, sort_keys=True)
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()


def stored_rows(folder: Path, key: str, length: int, layout: Layout = TEXT) -> Rows | None:
    """The rows cached under a key, or None if there are none or they are not whole."""
    width = layout.counts + length
    data, sidecar = _paths(folder, key)
    try:
        facts = json.loads(sidecar.read_text(encoding="utf-8"))
        totals, dtype = Totals(**facts["totals"]), np.dtype(facts["dtype"])
        if data.stat().st_size != totals.rows * width * dtype.itemsize:
            return None
        table = np.memmap(data, dtype, "r", shape=(totals.rows, width))
        return Rows(table, totals, layout)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store_rows(
    folder: Path, key: str, tables: Iterable[Table], totals: Totals, largest: int
) -> None:
    """Write blocks of rows, whose numbers are at most `largest`, under a key."""
    dtype = np.dtype(np.uint16 if largest < 2**16 else np.uint32)
    data, sidecar = _paths(folder, key)
    with _writing(folder) as name:
        with name.open("wb") as file:
            for table in tables:
                file.write(table.astype(dtype).data)
        name.replace(data)
    with _writing(folder) as name:
        name.write_text(json.dumps({"dtype": dtype.name, "totals": asdict(totals)}) + "\n")
        name.replace(sidecar)


def _paths(folder: Path, key: str) -> tuple[Path, Path]:
    return folder / f"{key}.rows", folder / f"{key}.json"


@contextmanager
def _writing(folder: Path) -> Iterator[Path]:
    """A temporary file in the folder, gone if anything goes wrong; a full disk is the user's to mend."""
    name = folder / f".writing-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield name
    except OSError as error:
        raise UnmaskError(
            f"the cache cannot be written to {folder}: {error.strerror or error}; "
            "free space there or set UNMASK_CACHE to another folder"
        ) from None
    finally:
        with suppress(OSError):
            name.unlink(missing_ok=True)
