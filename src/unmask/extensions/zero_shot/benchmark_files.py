"""Readers of benchmark files: lines, JSON objects, CSV columns."""

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from unmask.data.documents.fields import text_of
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.sources.corpus import Corpus
from unmask.data.sources.line_reader import Stream, decoded_lines, opened
from unmask.data.sources.text_files import digest_of
from unmask.errors import UnmaskError


class Form(Protocol):
    """A reader of one file layout. Its `repr` is part of the corpus hash."""

    def read(self, path: Path) -> Iterator[str]: ...


@dataclass(frozen=True)
class Lines:
    """Each line is a document: without spaces at its ends, or unchanged if `whole`."""

    whole: bool = False

    def read(self, path: Path) -> Iterator[str]:
        with opened(path) as stream:
            for line in _lines(stream, path):
                yield line if self.whole else line.strip()


@dataclass(frozen=True)
class Objects:
    """Each JSON object is a document: the text of a field, or its list of lines joined."""

    field: str = "text"

    def read(self, path: Path) -> Iterator[str]:
        decode = json.JSONDecoder().raw_decode
        with opened(path) as stream:
            for number, line in enumerate(_lines(stream, path), start=1):
                rest = line.strip()
                while rest:
                    try:
                        record, end = decode(rest)
                    except (ValueError, RecursionError):
                        raise UnmaskError(f"{path}:{number} is not JSON") from None
                    yield self._text(record, f"{path}:{number}")
                    rest = rest[end:].lstrip()

    def _text(self, record: object, location: str) -> str:
        if not isinstance(record, dict) or self.field not in record:
            raise UnmaskError(f"{location} has no field {self.field!r}")
        value = record[self.field]
        lines = value if isinstance(value, list) else [value]
        return "\n".join(text_of(line, location, self.field) for line in lines)


@dataclass(frozen=True)
class Columns:
    """Each record of a CSV file without header is a document: some columns, joined by spaces."""

    count: int
    taken: tuple[int, ...]

    def read(self, path: Path) -> Iterator[str]:
        with opened(path) as stream:
            records = csv.reader(_lines(stream, path), skipinitialspace=True)
            try:
                for record in filter(None, records):
                    if len(record) != self.count:
                        raise UnmaskError(
                            f"{path}:{records.line_num} has {len(record)} columns, not {self.count}"
                        )
                    yield " ".join(record[index] for index in self.taken)
            except csv.Error as error:
                raise UnmaskError(f"{path}:{records.line_num} is not CSV: {error}") from None


def _lines(stream: Stream, path: Path) -> Iterator[str]:
    """The lines of a stream. An unreadable line is an error: a benchmark must be read whole."""
    return (line or "" for line in decoded_lines(stream, str(path), ReadErrors()))


def file_corpus(paths: Sequence[Path], form: Form) -> Corpus:
    """The corpus of several files of one layout."""

    def read() -> Iterator[str]:
        for path in paths:
            yield from form.read(path)

    def hash_content() -> str:
        content = [repr(form), *(digest_of(path, {}) for path in paths)]
        return hashlib.blake2b("\n".join(content).encode(), digest_size=16).hexdigest()

    name = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files in {paths[0].parent}"
    return Corpus(name, read, hash_content)
