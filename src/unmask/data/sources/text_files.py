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
from unmask.data.documents.separation import documents_of
from unmask.data.sources.line_reader import (
    LONGEST,
    Stream,
    decoded_lines,
    form_suffix,
    opened,
    readable,
)
from unmask.errors import UnmaskError
from unmask.imports import extra

_TEXT = (".txt", ".text", ".md", ".rst")
_JSON_LINES = (".jsonl", ".ndjson", ".json")
_PARQUET = (".parquet",)
# in TSV a quote character has no special meaning
_TABLES: dict[str, dict[str, Any]] = {
    ".csv": {},
    ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE},
}


def known_file(path: Path) -> bool:
    """True if a file in a folder is read. A file that the user names is always read."""
    return form_suffix(path) in _TEXT + _JSON_LINES + _PARQUET


def has_fields(path: Path) -> bool:
    """True if the documents of a file have fields, which plain text lacks."""
    return _form(path) != "text"


def digest_of(path: Path, digests: dict[Path, str]) -> str:
    """The hash of a file's bytes, from `digests` if it is there, with the name of its format."""
    if path not in digests:
        with readable(path), path.open("rb") as stream:
            digests[path] = hashlib.file_digest(stream, "blake2b").hexdigest()
    return digests[path] + _form(path)


def read_documents(
    path: Path, reading: Fields, faults: ReadErrors, digests: dict[Path, str]
) -> Iterator[str]:
    """The documents of a file. Unreadable records are counted in `faults`.

    The first pass also stores a hash of the file in `digests`, except for Parquet.
    """
    form = _form(path)
    if form == "parquet":
        yield from _read_parquet(path, reading, faults)
        return
    with opened(path, digests) as stream:
        if form == "json":
            yield from _read_json_lines(stream, path, reading, faults)
        elif form in _TABLES:
            yield from _read_table(stream, path, reading, faults)
        else:
            name = str(path)
            yield from read_text(stream, name, reading.separator, faults, reading.one_of_many)


@contextmanager
def read_lines(
    path: Path, faults: ReadErrors, digests: dict[Path, str]
) -> Iterator[Iterator[str | None]]:
    """Opens a plain-text file as lines without line ends; None in place of an unreadable line."""
    with opened(path, digests) as stream:
        lines = decoded_lines(stream, str(path), faults)
        yield (line if line is None else line.removesuffix("\n") for line in lines)


def read_text(
    stream: Stream, name: str, separator: str, faults: ReadErrors, one_of_many: bool = False
) -> Iterator[str]:
    """The documents of plain UTF-8 text, divided as `documents_of` divides lines."""
    lines = (line for line in decoded_lines(stream, name, faults) if line is not None)
    yield from documents_of(lines, separator, one_of_many)


def _form(path: Path) -> str:
    suffix = form_suffix(path)
    if suffix in _TABLES:
        return suffix
    return "parquet" if suffix in _PARQUET else "json" if suffix in _JSON_LINES else "text"


def _read_json_lines(
    stream: Stream, path: Path, reading: Fields, faults: ReadErrors
) -> Iterator[str]:
    for number, line in enumerate(decoded_lines(stream, str(path), faults), start=1):
        if line is not None and not line.isspace():
            yield faults.document(_json_document, line, f"{path}:{number}", reading)


def _json_document(line: str, place: str, reading: Fields) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise UnmaskError(f"{place} is not JSON") from None
    if not isinstance(record, dict):
        field = reading.source_field or reading.text_field
        raise UnmaskError(f"{place} has no field {field!r}; it is no JSON object")
    reading.columns(list(record), place)
    return reading.document(record, place)


def _read_table(stream: Stream, path: Path, reading: Fields, faults: ReadErrors) -> Iterator[str]:
    """The documents of a CSV or TSV file. Its first line holds the names of the fields.

    Every line of an unreadable record is counted: a missing end quote swallows many lines.
    """
    csv.field_size_limit(LONGEST)  # process-wide; the default of 128 KiB is too small
    lines = decoded_lines(stream, str(path), faults)
    rows = csv.reader((line or "" for line in lines), strict=True, **_TABLES[_form(path)])
    names: list[str] | None = None
    while True:
        before = rows.line_num
        place = f"{path}:{before + 1}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            faults.add(f"{place} cannot be read as a table: {error}", rows.line_num - before)
            continue
        if row is None:
            break
        if names is None:
            reading.columns(row, str(path))
            names = row
        elif row:  # a blank line gives an empty list
            try:
                document = _table_document(names, row, place, reading)
            except UnmaskError as error:
                faults.add(str(error), rows.line_num - before)
            else:
                yield document


def _table_document(names: list[str], row: list[str], place: str, reading: Fields) -> str:
    if len(row) != len(names):
        raise UnmaskError(f"{place} has {len(row)} fields, the first line {len(names)}")
    return reading.document(dict(zip(names, row, strict=True)), place)


def _read_parquet(path: Path, reading: Fields, faults: ReadErrors) -> Iterator[str]:
    parquet, arrow = extra("pyarrow.parquet", str(path)), extra("pyarrow", str(path))
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            columns = reading.columns(file.schema_arrow.names, str(path))
            for batch in file.iter_batches(batch_size=256, columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    faults.seen += 1
                    yield faults.document(reading.document, record, f"{path}, record {number}")
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        faults.break_off(
            f"{path} is damaged or no Parquet file: {number:,} records were read, the rest is skipped: "
            f"{reason}"
        )
