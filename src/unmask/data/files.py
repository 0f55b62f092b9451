"""Documents out of one file: plain text, JSON lines, CSV, TSV or Parquet, compressed or not."""

import bz2
import csv
import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.data.extras import extra
from unmask.data.labels import Labelled, class_name
from unmask.data.pairs import pair_of
from unmask.errors import UnmaskError

_OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_TEXT = (".txt", ".text", ".md", ".rst")
_JSON_LINES = (".jsonl", ".ndjson", ".json")
_PARQUET = (".parquet",)
# a quote in TSV is a quote
_TABLES: dict[str, dict[str, Any]] = {
    ".csv": {},
    ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE},
}


@dataclass(frozen=True)
class Reading:
    """How files become documents: the separator of plain text, the fields of structured text."""

    separator: str
    text_field: str
    label_field: str = ""
    source_field: str = ""  # "": records are no pairs
    target_field: str = ""

    def columns(self, names: Sequence[str], place: str) -> list[str]:
        """The fields to read, all of which must be among `names`."""
        settings = ("text_field", "label_field")
        if self.source_field:
            settings = ("source_field", "target_field")
        wanted = {setting: getattr(self, setting) for setting in settings}
        for setting, field in wanted.items():
            if field and field not in names:
                raise UnmaskError(
                    f"{place} has no field {field!r}; it has {', '.join(names)}: set data.{setting}"
                )
        return [field for field in wanted.values() if field]

    def document(self, record: Mapping[str, object], place: str) -> str:
        """A record's text, with its class where a field holds one; or its source and target."""
        if self.source_field:
            fields = self.source_field, self.target_field
            source, target = (text_of(record[field], place, field) for field in fields)
            return pair_of(source, target, place, fields)
        text = text_of(record[self.text_field], place, self.text_field)
        if not self.label_field:
            return text
        label = class_name(record[self.label_field], place, self.label_field)
        return Labelled(text, label and text_of(label, place, self.label_field))


def known_file(path: Path) -> bool:
    """Whether a folder's file is taken for text; a file named by itself always is."""
    return _suffix(path) in _TEXT + _JSON_LINES + _PARQUET


def has_fields(path: Path) -> bool:
    """Whether a file's documents have fields: plain text has none."""
    return _form(path) != "text"


def digest_of(path: Path) -> str:
    """A hash of a file's bytes and of the form they are read in, wherever it lies."""
    with _readable(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest() + _form(path)


def read_documents(path: Path, reading: Reading) -> Iterator[str]:
    """The documents of a file, one at a time."""
    form = _form(path)
    if form == "parquet":
        yield from _read_parquet(path, reading)
        return
    with opened(path) as stream:
        if form == "json":
            yield from _read_json_lines(stream, path, reading)
        elif form in _TABLES:
            yield from _read_table(stream, path, reading)
        else:
            yield from read_text(stream, str(path), reading.separator)


@contextmanager
def opened(path: Path) -> Iterator[Iterable[bytes]]:
    """The lines of a file, whatever it is compressed with."""
    opener = _OPENERS.get(path.suffix, lambda p: p.open("rb"))
    with _readable(path), opener(path) as stream:
        yield stream


@contextmanager
def read_lines(path: Path) -> Iterator[Iterator[str]]:
    """The lines of a file of plain text, without their ends."""
    with opened(path) as stream:
        yield (line.removesuffix("\n") for line in decoded_lines(stream, str(path)))


def read_text(stream: Iterable[bytes], name: str, separator: str) -> Iterator[str]:
    """The documents of plain UTF-8 text: between separator lines, or each line, or all of it."""
    lines = decoded_lines(stream, name)
    if separator == "line":
        yield from (line.removesuffix("\n") for line in lines)
        return
    document: list[str] = []
    for line in lines:
        if separator != "file" and line.strip() == separator:
            yield "".join(document).removesuffix("\n")
            document = []
        else:
            document.append(line)
    yield "".join(document).removesuffix("\n")


def _suffix(path: Path) -> str:
    """The suffix that tells the form, behind a compressed file's own."""
    return (Path(path.stem) if path.suffix in _OPENERS else path).suffix.lower()


def _form(path: Path) -> str:
    suffix = _suffix(path)
    if suffix in _TABLES:
        return suffix
    return "parquet" if suffix in _PARQUET else "json" if suffix in _JSON_LINES else "text"


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise UnmaskError(f"{path} is damaged or cut short: {error}") from None
    except OSError as error:
        raise UnmaskError(f"{path} cannot be read: {error.strerror or error}") from None


def decoded_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of UTF-8 with plain line ends; a wrong byte is named by its offset."""
    offset = 0
    for raw in stream:
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnmaskError(
                f"{name} is not UTF-8: byte {offset + error.start} is 0x{raw[error.start]:02x}; "
                "convert it, for instance with iconv"
            ) from None
        if offset == 0:
            line = line.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")  # a byte-order mark
        offset += len(raw)
        yield line[:-2] + "\n" if line.endswith("\r\n") else line


def _read_json_lines(stream: Iterable[bytes], path: Path, reading: Reading) -> Iterator[str]:
    for number, line in enumerate(decoded_lines(stream, str(path)), start=1):
        if line.isspace():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise UnmaskError(f"{path}:{number} is not JSON") from None
        place = f"{path}:{number}"
        if not isinstance(record, dict):
            field = reading.source_field or reading.text_field
            raise UnmaskError(f"{place} has no field {field!r}; it is no object")
        reading.columns(list(record), place)
        yield reading.document(record, place)


def _read_table(stream: Iterable[bytes], path: Path, reading: Reading) -> Iterator[str]:
    """Records of CSV or TSV, whose first line names the fields."""
    rows = csv.reader(decoded_lines(stream, str(path)), strict=True, **_TABLES[_form(path)])
    try:
        names = next(rows, [])
        reading.columns(names, str(path))
        for row in rows:
            place = f"{path}:{rows.line_num}"
            if len(row) != len(names):
                if not row:  # a blank line
                    continue
                raise UnmaskError(f"{place} has {len(row)} fields, the first line {len(names)}")
            yield reading.document(dict(zip(names, row, strict=True)), place)
    except csv.Error as error:
        raise UnmaskError(f"{path}:{rows.line_num} cannot be read as a table: {error}") from None


def text_of(value: object, place: str, field: str) -> str:
    """A field's text; null counts as none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnmaskError(f"{place}: field {field!r} is {type(value).__name__}, not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UnmaskError(f"{place}: field {field!r} holds a lone surrogate") from None
    return value


def _read_parquet(path: Path, reading: Reading) -> Iterator[str]:
    parquet, arrow = extra("pyarrow.parquet", str(path)), extra("pyarrow", str(path))
    try:
        with parquet.ParquetFile(path) as file:
            columns = reading.columns(file.schema_arrow.names, str(path))
            for batch in file.iter_batches(batch_size=256, columns=columns):
                for record in batch.to_pylist():
                    yield reading.document(record, str(path))
    except (arrow.ArrowException, OSError) as error:
        raise UnmaskError(f"{path} is damaged or no Parquet file: {error}") from None
