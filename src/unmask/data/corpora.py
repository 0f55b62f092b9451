"""Documents from wherever text lives, one at a time, and a hash of their content.

A source is `builtin:pydoc`, a file, a folder, `-` (standard input, plain text), parallel files
(`train.{de,en}`), or `hf:OWNER/NAME[/CONFIG][:SPLIT]` (a dataset of the hub; the split is `train`
unless named).
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BufferedReader
from pathlib import Path

from unmask.data.faults import Faults
from unmask.data.files import (
    Reading,
    digest_of,
    has_fields,
    known_file,
    read_documents,
    read_text,
)
from unmask.data.labels import Labelled
from unmask.data.pairs import Pair, sides
from unmask.data.parallel import parallel_files, read_parallel
from unmask.errors import UnmaskError, unknown
from unmask.files.hub import asked_once
from unmask.imports import extra

ELSEWHERE = "elsewhere:"  # before the name of a file on the machine that a model comes from
LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes
_HASH_FRACTION = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio


@dataclass(frozen=True)
class Corpus:
    """Documents that can be read again and again, and the hash of what they are read from."""

    name: str
    read: Callable[[], Iterator[str]]
    hash_content: Callable[[], str]
    has_fields: bool = False  # beside the text: plain text has none
    faults: Faults = field(default_factory=Faults)  # of the last reading

    @cached_property
    def digest(self) -> str:
        """The hash of the content, wherever it lies; taken once."""
        return self.hash_content()

    def __iter__(self) -> Iterator[str]:
        """The documents in order, blank ones left out."""
        empty = True
        self.faults.begin()
        for document in self.read():
            if document and not document.isspace():
                empty = False
                yield document
        self.faults.check()
        if empty:
            raise UnmaskError(next(iter(self.faults.files), f"{self.name} holds no text"))

    def part(self, holdout: float, held: bool) -> Iterator[str]:
        """The held-out documents, or the others: a spread fraction that depends on the index only."""
        border, empty = int(holdout * 2**64), True
        for index, document in enumerate(self):
            if (index * _HASH_FRACTION % 2**64 < border) == held:
                empty = False
                yield document
        if empty:
            raise UnmaskError(
                f"{self.name} has too few documents to hold {holdout:g} of them out; "
                "give data.valid or another data.separator"
            )


def sample(documents: Callable[[], Iterable[str]], most: float) -> Iterator[str]:
    """The text of documents, or, if that is more than `most` characters, of a spread part of them."""
    share = most / max(1, sum(map(len, sides(documents()))))
    border = int(min(share, 1) * 2**64)
    chosen = (
        document
        for index, document in enumerate(documents())
        if index * _HASH_FRACTION % 2**64 < border
    )
    return sides(chosen)


def open_corpus(source: str, reading: Reading) -> Corpus:
    """The corpus that a source string names."""
    scheme, colon, rest = source.partition(":")
    if colon and scheme == "builtin":
        return _builtin(rest)
    if colon and scheme == "hf":
        return _dataset(rest, reading)
    if source.startswith(ELSEWHERE):
        raise UnmaskError(f"the text {rest!r} lies where the model was trained")
    if source == "-":
        return _standard_input(reading)
    if _is_text(source):
        raise UnmaskError(
            f"no file is called {source[:40]!r}…; texts themselves are given as a list"
        )
    if not source:
        raise UnmaskError("the name of a source is empty; . is the folder here")
    if paths := parallel_files(source):
        return _parallel(source, paths, reading)
    return _files(Path(source), reading)


def _is_text(source: str) -> bool:
    """Whether it can be no file's name."""
    name = source.encode("utf-8", "surrogatepass")
    long = len(name) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in name.split(b"/"))
    return long or b"\n" in name


def _hash_documents(documents: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for document in documents:
        parts = [document]
        if isinstance(document, Labelled):
            parts.append(repr(document.label))
        if isinstance(document, Pair):
            parts.append(document.source)
        for part in parts:
            content = part.encode("utf-8", "surrogatepass")
            digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _builtin(name: str) -> Corpus:
    if name != "pydoc":
        raise unknown("builtin corpus", name, ["pydoc"])

    def read() -> Iterator[str]:
        topics = _python_topics()
        return (topics[topic].strip() for topic in sorted(topics))

    return Corpus("builtin:pydoc", read, lambda: _hash_documents(read()))


def _python_topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # of a Python that was made small
        raise UnmaskError(
            "builtin:pydoc is not here, since this Python came without its documentation: set "
            "data.train to a file or a folder"
        ) from None
    return topics


def _files(path: Path, reading: Reading) -> Corpus:
    paths = _inside(path) if path.is_dir() else [path]
    if not path.exists():
        raise UnmaskError(f"no file or folder {path}")
    if not path.is_dir() and not path.is_file():
        raise UnmaskError(f"{path} is neither a file nor a folder; use - for standard input")
    if path.is_file() and path.stat().st_size == 0:
        raise UnmaskError(f"{path} is empty")

    faults = Faults(reading.corrupt)

    def read() -> Iterator[str]:
        for each in paths:
            yield from read_documents(each, reading, faults)

    def hash_content() -> str:
        return _hash_files(paths)

    return Corpus(str(path), read, hash_content, all(map(has_fields, paths)), faults)


def _hash_files(paths: Iterable[Path]) -> str:
    return hashlib.blake2b("".join(map(digest_of, paths)).encode(), digest_size=16).hexdigest()


def _parallel(source: str, paths: dict[str, Path], reading: Reading) -> Corpus:
    faults = Faults(reading.corrupt)

    def read() -> Iterator[str]:
        return read_parallel(source, paths, reading, faults)

    def hash_content() -> str:
        # which file has which name, too
        return hashlib.blake2b(repr([*paths, _hash_files(paths.values())]).encode()).hexdigest()

    return Corpus(source, read, hash_content, True, faults)


def _inside(folder: Path) -> list[Path]:
    """The text files of a folder and the folders in it, hidden ones left out."""
    visible = (
        path
        for path in folder.rglob("*")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    paths = sorted(path for path in visible if path.is_file() and known_file(path))
    if not paths:
        raise UnmaskError(f"no text, JSONL or Parquet files in the folder {folder}")
    return paths


def _standard_input(reading: Reading) -> Corpus:
    """Standard input, kept in a file that vanishes with the process: a corpus is read twice."""
    kept: list[int] = []
    faults = Faults(reading.corrupt)

    def stream() -> BufferedReader:
        if not kept:
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy)
                copy.flush()
                kept.append(os.dup(copy.fileno()))
        file = os.fdopen(os.dup(kept[0]), "rb")
        file.seek(0)
        return file

    def read() -> Iterator[str]:
        with stream() as file:
            yield from read_text(file, "standard input", reading.separator, faults)

    def hash_content() -> str:
        with stream() as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()

    return Corpus("standard input", read, hash_content, faults=faults)


def _dataset(name: str, reading: Reading) -> Corpus:
    """A dataset of the Hugging Face hub; with one slash the name is OWNER/NAME, not NAME/CONFIG."""
    path, _, split = name.partition(":")
    parts = path.split("/")
    repository, config = "/".join(parts[:2]), "/".join(parts[2:]) or None
    return hub_corpus(name, reading, repository, config, split=split or "train")


def hub_corpus(name: str, reading: Reading, *where: str | None, **options: str) -> Corpus:
    """A dataset of the hub, by what `load_dataset` is called with."""
    faults = Faults(reading.corrupt)

    def read() -> Iterator[str]:
        datasets = extra("datasets", f"hf:{name}")
        try:
            with asked_once(datasets, f"hf:{name}"):
                rows = datasets.load_dataset(*where, **options)
        except ConnectionError:
            raise UnmaskError(
                f"the dataset hf:{name} is not kept here, and the hub cannot be reached"
            ) from None
        except (OSError, ValueError, RuntimeError) as error:  # the last: it is a script
            reason = str(error).strip().partition("\n")[0]
            raise UnmaskError(f"the dataset hf:{name} cannot be loaded: {reason}") from None
        columns = reading.columns(rows.column_names, f"the dataset hf:{name}")
        names = getattr(rows.features.get(reading.label_field), "names", None)  # of a ClassLabel
        for number, row in enumerate(rows.select_columns(columns), start=1):
            if names:
                row[reading.label_field] = _named(names, row[reading.label_field])
            faults.seen += 1
            yield faults.document(reading.document, row, f"hf:{name}, record {number}")

    return Corpus(f"hf:{name}", read, lambda: _hash_documents(read()), True, faults)


def _named(names: list[str], index: int | None) -> str | None:
    """The name of a dataset's class; -1 is none."""
    return None if index is None or index < 0 else names[index]
