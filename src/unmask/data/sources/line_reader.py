"""Lines of plain or compressed text files; None in place of an unreadable line."""

import bz2
import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from unmask.data.documents.read_errors import ReadErrors
from unmask.errors import UnmaskError
from unmask.imports import extra


def _zstd(file: Any) -> Any:
    """A stream that decompresses a zstd file."""
    arrow = extra("pyarrow", "a zstd file")
    raw = arrow.OSFile(str(file)) if isinstance(file, Path) else arrow.PythonFile(file, "r")
    return io.BufferedReader(arrow.CompressedInputStream(raw, "zstd"), _BUFFER)


_OPENERS: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _zstd,
}
_MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}
DAMAGE = (lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile)
_BUFFER = 2**20
LONGEST = 2**28  # most bytes of a line; a small gzip file can hold a line that fills the memory


class Stream(Protocol):
    """A binary stream that is read line by line."""

    def readline(self, size: int = -1, /) -> bytes: ...


class _Hashed(io.RawIOBase):
    """A binary file that hashes its bytes while they are read."""

    def __init__(self, path: Path) -> None:
        self._file, self.hash = path.open("rb", buffering=0), hashlib.blake2b()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        self.hash.update(memoryview(buffer)[:count])
        return count

    def finish(self) -> str:
        """Reads the bytes that are left and returns the hash of the whole file."""
        while self.read(_BUFFER):
            pass
        return self.hash.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def opened(path: Path, digests: dict[Path, str] | None = None) -> Iterator[Stream]:
    """Opens a file and decompresses it by its first bytes, or else by its suffix.

    On leaving, the hash of the file's bytes is stored in `digests`, unless it is there already.
    """
    with readable(path), open(path, "rb") as file:
        opener = _opener(file.read(8), path)
    if digests is None or path in digests:
        with readable(path), opener(path) as stream:
            yield stream
        return
    with (
        readable(path),
        _Hashed(path) as raw,
        io.BufferedReader(raw, _BUFFER) as whole,
        opener(whole) as stream,
    ):
        yield stream
        digests[path] = raw.finish()


def decompressed(file: Any, path: Path) -> Any:
    """A seekable file from its start, decompressed by its first bytes, or else by its suffix."""
    file.seek(0)
    opener = _opener(file.read(8), path)
    file.seek(0)
    return nullcontext(file) if opener is _plain else opener(file)


def _opener(head: bytes, path: Path) -> Callable[[Any], Any]:
    found = next(
        (suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), path.suffix
    )
    return _OPENERS.get(found, _plain)


def _plain(file: Any) -> Any:
    return file.open("rb") if isinstance(file, Path) else file


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns an error of the operating system into a one-line error about the file."""
    try:
        yield
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}") from None


def matching_files(folder: Path, pattern: str) -> list[Path]:
    """The sorted files of a folder that match a pattern;
    compressed files if no plain file matches.
    """
    found = (sorted(folder.glob(pattern + suffix)) for suffix in ("", *_OPENERS))
    return next(filter(None, found), [])


def format_suffix(path: Path) -> str:
    """The suffix of the file format in lower case: `.json` of `a.JSON.gz`."""
    return (Path(path.stem) if path.suffix in _OPENERS else path).suffix.lower()


def decoded_lines(stream: Stream, name: str, faults: ReadErrors) -> Iterator[str | None]:
    r"""Lines of UTF-8, with \n in place of \r\n; None in place of an unreadable line."""
    offset = 0
    for number, raw in enumerate(_raw_lines(stream, name, faults), start=1):
        line = None if raw is None else _decoded(raw, name, number, offset, faults)
        if line is not None and number == 1:
            line = line.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")  # a byte-order mark
        offset += len(raw or b"")
        yield line[:-2] + "\n" if line and line.endswith("\r\n") else line


def _raw_lines(stream: Stream, name: str, faults: ReadErrors) -> Iterator[bytes | None]:
    """The lines of a stream, up to the first damage; None in place of a line that is too long."""
    number = 0
    try:
        for raw in iter(partial(stream.readline, LONGEST), b""):
            number += 1
            faults.seen += 1
            if len(raw) < LONGEST or raw.endswith(b"\n"):
                yield raw
                continue
            faults.add(f"{name}:{number} is longer than {LONGEST:,} bytes: break the line")
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(LONGEST)
            yield None
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        faults.break_off(
            f"{name} is damaged or cut short: {number:,} lines were read, the rest is skipped: {error}"
        )


def _decoded(raw: bytes, name: str, number: int, offset: int, faults: ReadErrors) -> str | None:
    """A line as text; None, and a read error with the offset of the wrong byte,
    if it is not text.
    """
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        faults.add(
            f"{name}:{number} is not UTF-8: byte {offset + error.start} is 0x{raw[error.start]:02x}; "
            "convert it, for instance with iconv"
        )
        return None
    if "\0" in line:
        faults.add(f"{name}:{number} holds a NUL byte: it is not text")
        return None
    return line
