"""Reads the documents of one file: plain text, JSON lines, CSV, TSV or Parquet."""

import csv
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask.data.documents.fields import Fields
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.sources.line_reader import (
    LONGEST,
    Stream,
    decoded_lines,
    format_suffix,
    opened,
    readable,
)
from unmask.errors import UnmaskError
from unmask.imports import extra

_TEXT = (".txt", ".text", ".md", ".rst")
_JSON_LINES = (".jsonl", ".ndjson", ".json")
_PARQUET = (".parquet",)
_LONGEST = 2**28  # most characters of a plain-text document; a longer one is split
# in TSV a quote character has no special meaning
_TABLES: dict[str, dict[str, Any]] = {
    ".csv": {},
    ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE},
}


def known_file(path: Path) -> bool:
    """True if a file in a folder is read, by its suffix. A file that the user names is always read."""
    return format_suffix(path) in _TEXT + _JSON_LINES + _PARQUET


def has_fields(path: Path) -> bool:
    """True if the documents of a file have named fields; plain text has none."""
    return _format(path) != "text"


def digest_of(path: Path, digests: dict[Path, str]) -> str:
    """The hash of a file's bytes, from `digests` if it is there, with the name of its format."""
    if path not in digests:
        with readable(path), path.open("rb") as stream:
            digests[path] = hashlib.file_digest(stream, "blake2b").hexdigest()
    return digests[path] + _format(path)


def read_documents(
    path: Path, fields: Fields, faults: ReadErrors, digests: dict[Path, str]
) -> Iterator[str]:
    """The documents of a file. Unreadable records are counted in `faults`.

    The first pass also stores a hash of the file in `digests`, except for Parquet.
    """
    file_format = _format(path)
    if file_format == "parquet":
        yield from _read_parquet(path, fields, faults)
        return
    with opened(path, digests) as stream:
        if file_format == "json":
            yield from _read_json_lines(stream, path, fields, faults)
        elif file_format in _TABLES:
            yield from _read_table(stream, path, fields, faults)
        else:
            yield from read_text(stream, str(path), fields.separator, faults)


@contextmanager
def read_lines(
    path: Path, faults: ReadErrors, digests: dict[Path, str]
) -> Iterator[Iterator[str | None]]:
    """Opens a plain-text file as lines without line ends; None in place of an unreadable line."""
    with opened(path, digests) as stream:
        lines = decoded_lines(stream, str(path), faults)
        yield (line if line is None else line.removesuffix("\n") for line in lines)


def read_text(stream: Stream, name: str, separator: str, faults: ReadErrors) -> Iterator[str]:
    """The documents of plain UTF-8 text: split at separator lines, one per line, or one per file."""
    lines = (line for line in decoded_lines(stream, name, faults) if line is not None)
    if separator == "line":
        yield from (line.removesuffix("\n") for line in lines)
        return
    document: list[str] = []
    size = 0
    for line in lines:
        ends = separator != "file" and line.strip() == separator
        if ends or size > _LONGEST:
            yield "".join(document).removesuffix("\n")
            document, size = [], 0
        if not ends:
            document.append(line)
            size += len(line)
    yield "".join(document).removesuffix("\n")


def _format(path: Path) -> str:
    suffix = format_suffix(path)
    if suffix in _TABLES:
        return suffix
    return "parquet" if suffix in _PARQUET else "json" if suffix in _JSON_LINES else "text"


def _read_json_lines(
    stream: Stream, path: Path, fields: Fields, faults: ReadErrors
) -> Iterator[str]:
    for number, line in enumerate(decoded_lines(stream, str(path), faults), start=1):
        if line is not None and not line.isspace():
            yield faults.document(_json_document, line, f"{path}:{number}", fields)


def _json_document(line: str, location: str, fields: Fields) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise UnmaskError(f"{location} is not JSON") from None
    if not isinstance(record, dict):
        field = fields.source_field or fields.text_field
        raise UnmaskError(f"{location} has no field {field!r}; it is no JSON object")
    fields.columns(list(record), location)
    return fields.document(record, location)


def _read_table(stream: Stream, path: Path, fields: Fields, faults: ReadErrors) -> Iterator[str]:
    """The documents of a CSV or TSV file. Its first line holds the names of the fields.

    Every line of an unreadable record is counted, since a missing end quote joins many lines to one
    record.
    """
    csv.field_size_limit(LONGEST)  # process-wide; the default of 128 KiB is too small
    lines = decoded_lines(stream, str(path), faults)
    rows = csv.reader((line or "" for line in lines), strict=True, **_TABLES[_format(path)])
    names: list[str] | None = None
    while True:
        before = rows.line_num
        location = f"{path}:{before + 1}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            faults.add(f"{location} cannot be read as a table: {error}", rows.line_num - before)
            continue
        if row is None:
            break
        if names is None:
            fields.columns(row, str(path))
            names = row
        elif row:  # a blank line gives an empty list
            try:
                document = _table_document(names, row, location, fields)
            except UnmaskError as error:
                faults.add(str(error), rows.line_num - before)
            else:
                yield document


def _table_document(names: list[str], row: list[str], location: str, fields: Fields) -> str:
    if len(row) != len(names):
        raise UnmaskError(f"{location} has {len(row)} fields, the first line {len(names)}")
    return fields.document(dict(zip(names, row, strict=True)), location)


def _read_parquet(path: Path, fields: Fields, faults: ReadErrors) -> Iterator[str]:
    parquet, arrow = extra("pyarrow.parquet", str(path)), extra("pyarrow", str(path))
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            columns = fields.columns(file.schema_arrow.names, str(path))
            for batch in file.iter_batches(batch_size=256, columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    faults.seen += 1
                    yield faults.document(fields.document, record, f"{path}, record {number}")
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        faults.break_off(
            f"{path} is damaged or no Parquet file: {number:,} records were read, the rest is skipped: "
            f"{reason}"
        )
