"""The form of a file by its content: text, JSON, a table, Parquet, Arrow, an archive or a registered form."""

import json
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, cast

from unmask.data.sources.line_reader import DAMAGE, decompressed, format_suffix, opened, readable
from unmask.data.sources.registered_forms import FILE_FORMS, registered_form
from unmask.errors import UnmaskError

TEXT = (".txt", ".text", ".md", ".rst")
JSON_LINES = (".jsonl", ".ndjson", ".json")
BINARY = (".parquet", ".arrow")
TABLES = (".csv", ".tsv")
ARCHIVES = (".zip", ".tar", ".tgz")
_HEAD = 2**16  # bytes that decide
_IN_MEMORY = 2**26  # bytes of a member of an archive; a larger one goes to the disk
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a]")
_FORMS = {
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",  # a stream of record batches, as `save_to_disk` writes it
}
_OTHERS = {  # files that people take for text; other binary files are refused as no UTF-8
    b"%PDF-": "a PDF file",
    b"{\\rtf": "an RTF document",
    b"\xd0\xcf\x11\xe0": "an Office document",
    b"GGUF": "a GGUF model",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}


def known_name(name: str) -> bool:
    """True if a file in a folder or archive is read. A file that the user names is always read."""
    suffix, known = format_suffix(Path(name)), TEXT + JSON_LINES + BINARY + TABLES + ARCHIVES
    return suffix in known or any(suffix in FILE_FORMS[form].suffixes for form in FILE_FORMS)


def form_of(path: Path) -> str:
    """The form of a file: text, json, array, .csv, .tsv, parquet, arrow, zip, tar, or a registered one."""
    with readable(path):
        state = path.stat()
        return _form(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4096)
def _form(path: Path, size: int, changed: int) -> str:
    """The form of a file of this size that was changed at this time."""
    with open(path, "rb") as file, decompressed(file, path) as stream:
        head = _first_bytes(stream)
    return form_by_content(head, str(path), format_suffix(path))


def form_by_content(head: bytes, name: str, suffix: str) -> str:
    """The form by the first bytes after decompression; the suffix decides between texts.

    A binary file that holds no text raises an error that names its kind.
    """
    registered = {magic: form for form in FILE_FORMS for magic in FILE_FORMS[form].magic}
    for magic, form in {**_FORMS, **registered}.items():
        if head.startswith(magic):
            return form
    if head[257:262] == b"ustar":
        return "tar"
    control = _CONTROL.search(head)
    for magic, kind in _OTHERS.items():
        # a text may begin with the letters of a binary file
        if head.startswith(magic) and (control or not magic.isalnum()):
            raise UnmaskError(f"{name} is {kind}: give UTF-8 text, JSON, CSV, Parquet or Arrow")
    if suffix in TABLES:
        return suffix
    if other := registered_form(suffix, b"" if suffix in TEXT else head):
        return other
    if suffix in BINARY:
        return suffix.removeprefix(".")  # its reader raises the error
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if suffix == ".json" and start.startswith(b"["):
        return "array"
    if suffix in JSON_LINES or (suffix not in TEXT and _is_record(start)):
        return "json"
    return "text"


def _is_record(start: bytes) -> bool:
    """True if the first line is a JSON object."""
    try:
        return start.startswith(b"{") and isinstance(json.loads(start.partition(b"\n")[0]), dict)
    except (ValueError, RecursionError):
        return False


def _first_bytes(stream: Any) -> bytes:
    try:
        head: bytes = stream.read(_HEAD)
    except (*DAMAGE, OSError):
        return b""
    return head


@contextmanager
def opened_member(content: Any, name: str) -> Iterator[tuple[Any, str]]:
    """A member of an archive, decompressed, and its form.

    A temporary file holds the member, because some forms are read backwards.
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        shutil.copyfileobj(content, file)
        path = Path(name)
        with decompressed(file, path) as stream:
            form = form_by_content(_first_bytes(stream), name, format_suffix(path))
        with decompressed(file, path) as stream:
            yield stream, form


def members(path: Path, form: str) -> Generator[tuple[str, Any], None, None]:
    """Name and content of the readable members of an archive; zip by name, tar in its order."""
    found = False
    for name, content in _zipped(path) if form == "zip" else _tarred(path):
        if known_name(name) and not any(part[:1] in "._" for part in Path(name).parts):
            found = True
            with content() as stream:
                yield f"{path}/{name}", stream
    if not found:
        raise UnmaskError(
            f"{path} is a {form} archive without text, JSON, CSV, Parquet or Arrow files: "
            "extract its text first"
        )


def _zipped(path: Path) -> Iterator[tuple[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith("/"):
                yield name, partial(archive.open, name)


def _tarred(path: Path) -> Iterator[tuple[str, Any]]:
    with (
        opened(path) as stream,
        tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as archive,
    ):
        for member in archive:
            if member.isreg():
                yield member.name, partial(archive.extractfile, member)
