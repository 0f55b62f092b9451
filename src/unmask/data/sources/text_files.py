"""Reads the documents of one file: text, JSON, CSV, Parquet, Arrow, a registered form, or an archive."""

import csv
import hashlib
import json
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from unmask.data.documents.fields import Fields
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.documents.separation import documents_of
from unmask.data.sources.file_forms import form_of, members, opened_member
from unmask.data.sources.line_reader import (
    DAMAGE,
    LONGEST,
    Stream,
    decoded_lines,
    opened,
    readable,
)
from unmask.data.sources.registered_forms import FILE_FORMS
from unmask.errors import UnmaskError
from unmask.imports import extra

# in TSV a quote character has no special meaning
_TABLES: dict[str, dict[str, Any]] = {
    ".csv": {},
    ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE},
}


def has_fields(path: Path) -> bool:
    """True if the documents of a file have fields, which plain text lacks.

    The first member of an archive decides for the others.
    """
    form = form_of(path)
    if form in ("zip", "tar"):
        with readable_archive(path), closing(members(path, form)) as inside:
            name, content = next(inside)
            with opened_member(content, name) as (_, form):
                pass
    return form != "text" and form not in FILE_FORMS


def digest_of(path: Path, digests: dict[Path, str]) -> str:
    """The hash of a file's bytes, from `digests` if it is there, with the name of its format."""
    if path not in digests:
        with readable(path), path.open("rb") as stream:
            digests[path] = hashlib.file_digest(stream, "blake2b").hexdigest()
    return digests[path] + form_of(path)


def read_documents(
    path: Path, fields: Fields, faults: ReadErrors, digests: dict[Path, str]
) -> Iterator[str]:
    """The documents of a file. Unreadable records are counted in `faults`.

    The first pass also stores a hash of the file in `digests`, except for binary forms.
    """
    form = form_of(path)
    if form in ("zip", "tar"):
        with readable_archive(path):
            for name, content in members(path, form):
                with opened_member(content, name) as (stream, inner):
                    yield from _read_form(stream, name, inner, fields, faults)
    elif form in ("parquet", "arrow"):
        yield from _read_form(path, str(path), form, fields, faults)
    elif form in FILE_FORMS and FILE_FORMS[form].magic:
        yield from FILE_FORMS[form].documents(path, str(path), fields, faults)
    else:
        if form in FILE_FORMS:
            FILE_FORMS[form].check(path)
        with opened(path, digests) as stream:
            yield from _read_form(stream, str(path), form, fields, faults)


def _read_form(
    stream: Any, name: str, form: str, fields: Fields, faults: ReadErrors
) -> Iterator[str]:
    """The documents of a file, or of a member of an archive, in one of the forms."""
    if form == "parquet":
        return _read_parquet(stream, name, fields, faults)
    if form == "arrow":
        return _read_arrow(stream, name, fields, faults)
    if form == "json":
        return _read_json_lines(stream, name, fields, faults)
    if form == "array":
        return _read_json_array(stream, name, fields, faults)
    if form in FILE_FORMS and not FILE_FORMS[form].magic:
        return FILE_FORMS[form].documents(stream, name, fields, faults)
    if form in _TABLES:
        return _read_table(stream, name, form, fields, faults)
    if form != "text":
        raise UnmaskError(f"{name} is an archive inside an archive: extract it first")
    return read_text(stream, name, fields.separator, faults, fields.one_of_many)


@contextmanager
def readable_archive(path: Path) -> Iterator[None]:
    """Turns an error of a damaged or encrypted archive into a one-line error about the file."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, *DAMAGE, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise UnmaskError(f"{path} is a damaged or encrypted archive: {reason}") from None


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


def _read_json_lines(
    stream: Stream, name: str, fields: Fields, faults: ReadErrors
) -> Iterator[str]:
    for number, line in enumerate(decoded_lines(stream, name, faults), start=1):
        if line is not None and not line.isspace():
            yield faults.document(_json_document, line, f"{name}:{number}", fields)


def _read_json_array(
    stream: Stream, name: str, fields: Fields, faults: ReadErrors
) -> Iterator[str]:
    """The documents of a JSON array of objects; the file is read at once."""
    text = "".join(line or "" for line in decoded_lines(stream, name, faults))
    try:
        records = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnmaskError(f"{name} is not JSON: {error}") from None
    for number, record in enumerate(records, start=1):
        faults.seen += 1
        yield faults.document(_record_document, record, f"{name}, record {number}", fields)


def _json_document(line: str, location: str, fields: Fields) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise UnmaskError(f"{location} is not JSON") from None
    return _record_document(record, location, fields)


def _record_document(record: Any, location: str, fields: Fields) -> str:
    if not isinstance(record, dict):
        field = fields.source_field or fields.text_field
        raise UnmaskError(f"{location} has no field {field!r}; it is no JSON object")
    fields.columns(list(record), location)
    return fields.document(record, location)


def _read_table(
    stream: Stream, path: str, form: str, fields: Fields, faults: ReadErrors
) -> Iterator[str]:
    """The documents of a CSV or TSV file. Its first line holds the names of the fields.

    Every line of an unreadable record is counted, since a missing end quote joins many lines to one
    record.
    """
    csv.field_size_limit(LONGEST)  # process-wide; the default of 128 KiB is too small
    lines = decoded_lines(stream, path, faults)
    rows = csv.reader((line or "" for line in lines), strict=True, **_TABLES[form])
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
            fields.columns(row, path)
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


def _read_parquet(file: Any, path: str, fields: Fields, faults: ReadErrors) -> Iterator[str]:
    parquet = extra("pyarrow.parquet", path)

    def batches() -> Iterator[Any]:
        with parquet.ParquetFile(file) as table:
            columns = fields.columns(table.schema_arrow.names, path)
            yield from table.iter_batches(batch_size=256, columns=columns)

    return _read_batches(batches(), path, "Parquet", fields, faults)


def _read_arrow(file: Any, path: str, fields: Fields, faults: ReadErrors) -> Iterator[str]:
    """The documents of an Arrow file, or of an Arrow stream as `datasets` writes it."""
    arrow = extra("pyarrow", path)

    def batches() -> Iterator[Any]:
        with (
            arrow.OSFile(str(file)) if isinstance(file, Path) else arrow.PythonFile(file) as content
        ):
            whole = content.read(6) == b"ARROW1"
            content.seek(0)
            table = (arrow.ipc.open_file if whole else arrow.ipc.open_stream)(content)
            columns = fields.columns(table.schema.names, path)
            count = range(table.num_record_batches) if whole else ()
            for batch in map(table.get_batch, count) if whole else table:
                yield batch.select(columns)

    return _read_batches(batches(), path, "Arrow", fields, faults)


def _read_batches(
    batches: Iterator[Any], path: str, form: str, fields: Fields, faults: ReadErrors
) -> Iterator[str]:
    arrow = extra("pyarrow", path)
    number = 0
    try:
        for batch in batches:
            for record in batch.to_pylist():
                number += 1
                faults.seen += 1
                yield faults.document(fields.document, record, f"{path}, record {number}")
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        faults.break_off(
            f"{path} is damaged or no {form} file: {number:,} records were read, the rest is skipped: "
            f"{reason}"
        )
