"""Local sources: built-in text, files, folders, parallel files, standard input."""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path

from unmask.data.documents.fields import Fields
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.sources.corpus import (
    ELSEWHERE,
    SOURCES,
    Corpus,
    Source,
    hash_documents,
    python_topics,
)
from unmask.data.sources.file_forms import known_name
from unmask.data.sources.text_files import (
    digest_of,
    has_fields,
    read_documents,
    read_lines,
    read_text,
)
from unmask.errors import UnmaskError, unknown
from unmask.files.storage import read_json

LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes
_MANY = 20  # files of a folder from which on `data.separator auto` keeps each file whole


def _is_text(source: str) -> bool:
    """True if the string cannot be a path: a part is too long, or it holds a line break."""
    name = source.encode("utf-8", "surrogatepass")
    long = len(name) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in name.split(b"/"))
    return long or b"\n" in name


@SOURCES.register("builtin:")
class Builtin(Source):
    """Text that comes with Python: builtin:pydoc is its documentation."""

    anywhere = True

    @classmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """The corpus of a built-in text."""
        if spec != "pydoc":
            raise unknown("builtin corpus", spec, ["pydoc"])

        def read() -> Iterator[str]:
            topics = python_topics()
            return (topics[topic].strip() for topic in sorted(topics))

        return Corpus("builtin:pydoc", read, lambda: hash_documents(read()))


@SOURCES.register(ELSEWHERE)
class Elsewhere(Source):
    """A file on the machine where a model was trained; it cannot be opened here."""

    @classmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """Raises an error: the file is on another machine."""
        raise UnmaskError(f"the text {spec!r} is on the machine where the model was trained")


@SOURCES.register("path")
class LocalPath(Source):
    """A file, a folder, or parallel files such as train.{de,en}."""

    @classmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """The documents of a file, of all files of a folder, or of parallel files."""
        if _is_text(spec):
            raise UnmaskError(f"{spec[:40]!r}… is a text and no file name: give texts as a list")
        if not spec:
            raise UnmaskError("the name of a source is empty: name a file or a folder, such as .")
        if paths := parallel_files(spec):
            return _parallel(spec, paths, fields)
        return _files(Path(spec), fields)


def _files(path: Path, fields: Fields) -> Corpus:
    paths = _text_files(path) if path.is_dir() else [path]
    if not path.exists():
        raise UnmaskError(f"no file or folder {path}")
    if not path.is_dir() and not path.is_file():
        raise UnmaskError(f"{path} is neither a file nor a folder: use - for standard input")
    if path.is_file() and path.stat().st_size == 0:
        raise UnmaskError(f"{path} is empty")

    faults = ReadErrors(fields.corrupt)
    digests: dict[Path, str] = {}
    fields = replace(fields, one_of_many=len(paths) >= _MANY)

    def read() -> Iterator[str]:
        for file in paths:
            yield from read_documents(file, fields, faults, digests)
        fields.regions.check_used(str(path))

    def hash_content() -> str:
        return _hash_files(paths, digests) + fields.regions.digest

    return Corpus(str(path), read, hash_content, all(map(has_fields, paths)), faults)


def _hash_files(paths: Iterable[Path], digests: dict[Path, str]) -> str:
    content = "".join(digest_of(path, digests) for path in paths)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _parallel(source: str, paths: dict[str, Path], fields: Fields) -> Corpus:
    faults = ReadErrors(fields.corrupt)
    digests: dict[Path, str] = {}

    def read() -> Iterator[str]:
        return read_parallel(source, paths, fields, faults, digests)

    def hash_content() -> str:
        # with the field names, which decide the file of the sources and that of the targets
        return hashlib.blake2b(
            repr([*paths, _hash_files(paths.values(), digests)]).encode()
        ).hexdigest()

    return Corpus(source, read, hash_content, True, faults)


def _text_files(folder: Path) -> list[Path]:
    """The text files in a folder and its subfolders, without hidden ones.

    A folder that `save_to_disk` of datasets wrote gives the Arrow files of its split `train`.
    """
    if (folder / "dataset_dict.json").is_file():
        splits = read_json(folder / "dataset_dict.json").get("splits", [])
        if "train" not in splits:
            named = ", ".join(f"{folder}/{split}" for split in splits)
            raise UnmaskError(f"{folder} holds a dataset without the split train: give {named}")
        folder /= "train"
    if (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file():
        files = read_json(folder / "state.json").get("_data_files", [])
        return [folder / Path(file["filename"]).name for file in files]
    visible = (
        path
        for path in folder.rglob("*")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    paths = sorted(path for path in visible if path.is_file() and known_name(path.name))
    if not paths:
        raise UnmaskError(f"no text, JSON, CSV, Parquet or Arrow files in the folder {folder}")
    return paths


@SOURCES.register("-")
class StandardInput(Source):
    """Standard input as plain text."""

    @classmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """The corpus of standard input, copied to a temporary file so that it can be read again."""
        return _standard_input(fields)


def _standard_input(fields: Fields) -> Corpus:
    copies: list[int] = []  # the descriptor of the copy, once it is made
    faults = ReadErrors(fields.corrupt)

    def stream() -> BufferedReader:
        if not copies:
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(sys.stdin.buffer, copy)
                copy.flush()
                copies.append(os.dup(copy.fileno()))
        file = os.fdopen(os.dup(copies[0]), "rb")
        file.seek(0)
        return file

    def read() -> Iterator[str]:
        with stream() as file:
            yield from read_text(file, "standard input", fields.separator, faults)

    def hash_content() -> str:
        with stream() as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()

    return Corpus("standard input", read, hash_content, faults=faults)


_ENDED = object()
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def parallel_files(source: str) -> dict[str, Path]:
    """The files of a source with braces, by the name in the braces; empty without braces."""
    found = _BRACES.search(source)
    if found is None:
        return {}
    names = [name.strip() for name in found[1].split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise UnmaskError(f"{source}: the braces need different names, such as {{de,en}}")
    paths = {name: Path(source[: found.start()] + name + source[found.end() :]) for name in names}
    for path in paths.values():
        if not path.is_file():
            raise UnmaskError(f"no file {path}, which {source} names")
    return paths


def read_parallel(
    source: str,
    paths: dict[str, Path],
    fields: Fields,
    faults: ReadErrors,
    digests: dict[Path, str],
) -> Iterator[str]:
    """The documents of parallel files; an error if the files differ in their number of lines."""
    columns = fields.columns(list(paths), source)
    with ExitStack() as stack:
        by_file = [ReadErrors(faults.allowed) for _ in columns]  # unreadable lines of each file
        lines = [
            stack.enter_context(read_lines(paths[name], found, digests))
            for name, found in zip(columns, by_file, strict=True)
        ]
        for number, values in enumerate(zip_longest(*lines, fillvalue=_ENDED), start=1):
            if _ENDED in values:
                ended, longer = (paths[columns[i]] for i in _ended_and_longer(values))
                raise UnmaskError(
                    f"{ended} has {number - 1} lines and {longer} has more: parallel files "
                    "need the same number of lines"
                )
            faults.seen += 1
            if None in values:  # one unreadable line makes the record unreadable
                faults.add(by_file[values.index(None)].first)
                continue
            record = dict(zip(columns, values, strict=True))
            yield faults.document(fields.document, record, f"{source}:{number}")
        faults.files += [file for found in by_file for file in found.files]


def _ended_and_longer(values: tuple[object, ...]) -> tuple[int, int]:
    """The index of a file that has ended and of a file that has not."""
    longer = next(i for i, value in enumerate(values) if value is not _ENDED)
    return values.index(_ENDED), longer
