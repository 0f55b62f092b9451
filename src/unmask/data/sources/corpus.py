"""A corpus, its held-out split and its samples; the registry of sources.

Names of sources:

- `builtin:pydoc`: the documentation of Python;
- a file, a folder, or parallel files such as `train.{de,en}`;
- `-`: standard input, plain text;
- `python:stdlib,numpy`: source files of the standard library and of installed packages;
- `hf:OWNER/NAME[/CONFIG][:SPLIT]`: a dataset of the hub; the default split is `train`;
- a scheme of a plugin.
"""

import hashlib
import json
import tempfile
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

from unmask.data.documents.fields import Fields
from unmask.data.documents.labels import Labelled
from unmask.data.documents.pairs import Pair, sides
from unmask.data.documents.read_errors import ReadErrors
from unmask.errors import UnmaskError
from unmask.registry import Registry

ELSEWHERE = "elsewhere:"  # scheme of a file on the machine where a model was trained
_HASH_FRACTION = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio
_FEW = 200  # most documents of a corpus whose sizes decide about the held-out ones
_IN_MEMORY = 2**26  # bytes of documents kept in memory; more go to a temporary file


class _OpenPass:
    """The rest of a pass over a corpus that stopped early; the next pass continues it."""

    def __init__(self) -> None:
        self._rest: Iterator[str] | None = None

    def keep(self, rest: Iterator[str]) -> None:
        """Keeps the documents that are left."""
        self._rest = rest

    def take(self) -> Iterator[str] | None:
        """The documents that are left, once; None if no pass has stopped early."""
        rest, self._rest = self._rest, None
        return rest


@dataclass(frozen=True)
class Corpus:
    """A named sequence of documents that can be read repeatedly, with a hash of its content.

    A stream has no hash. It may be endless, has no held-out documents, and its rows are not cached.
    """

    name: str
    read: Callable[[], Iterator[str]]
    hash_content: Callable[[], str] | None
    has_fields: bool = False  # True if documents are records with named fields; plain text has none
    faults: ReadErrors = field(default_factory=ReadErrors)  # read errors of the last pass
    read_on: Callable[[int], Iterator[str]] | None = None  # the documents from an index on
    _open_pass: _OpenPass = field(default_factory=_OpenPass, init=False, compare=False, repr=False)

    @classmethod
    def stream(
        cls, name: str, documents: Callable[[int], Iterator[str]], has_fields: bool = False
    ) -> "Corpus":
        """An endless corpus, or one that is too long to read in full.

        Args:
            name: the source as the user named it.
            documents: the documents from an index on (0 is the first), the same at each call.
            has_fields: True if the documents may be pairs, which are made from two fields.

        Returns:
            A corpus without a hash.

        Example:
            >>> from itertools import count
            >>> squares = Corpus.stream("squares:", lambda start: (str(n * n) for n in count(start)))
            >>> next(squares.documents(12)), squares.digest
            ('144', None)
        """
        return cls(name, partial(documents, 0), None, has_fields, read_on=documents)

    @cached_property
    def digest(self) -> str | None:
        """The hash of the content, independent of its path, computed once; None for a stream."""
        if not self.hash_content:
            return None
        counts = deepcopy(vars(self.faults))
        digest = self.hash_content()
        vars(self.faults).update(counts)  # those of a pass that may have begun
        return digest

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The characters of each document, if there are few; empty if there are many.

        The next pass over the documents continues this one, so they are not read again.
        """
        documents = self._documents()
        read: list[str] = []
        found: list[int] = []
        for document in documents:
            read.append(document)
            found.append(sum(map(len, sides([document]))))
            if len(found) > _FEW or sum(found) > _IN_MEMORY:
                found = []
                break
        self._open_pass.keep(chain(read, documents))
        return tuple(found)

    @property
    def endless(self) -> bool:
        """True if the corpus is a stream."""
        return self.hash_content is None

    def documents(self, start: int) -> Iterator[str]:
        """The documents from index `start` on, blank ones included."""
        return self.read_on(start) if self.read_on else islice(self.read(), start, None)

    def __iter__(self) -> Iterator[str]:
        """The documents in order, without blank ones."""
        return self._open_pass.take() or self._documents()

    def _documents(self) -> Iterator[str]:
        empty = True
        self.faults.begin()
        for document in self.read():
            if document and not document.isspace():
                empty = False
                yield document
        self.faults.check()
        if empty:
            raise UnmaskError(next(iter(self.faults.files), f"{self.name} holds no text"))

    def part(
        self, holdout: float, held: bool, spool: "DocumentSpool | None" = None
    ) -> Iterator[str]:
        """The held-out documents if `held`, else the others.

        The index of a document decides. Of few documents of unequal size, the sizes decide
        (`held_by_size`). A full pass over the others stores the held-out documents in `spool`. A later pass over the
        held-out documents reads them from `spool`, so the corpus is read once.
        """
        chosen, limit, empty = self.held_by_size(holdout), int(holdout * 2**64), True

        def is_held(index: int) -> bool:
            return _index_hash(index) < limit if chosen is None else index in chosen

        if held and spool is not None and spool.complete:
            found: Iterator[str] = iter(spool)
        else:
            found = self._split(is_held, held, None if held else spool)
        for document in found:
            empty = False
            yield document
        if empty:
            raise UnmaskError(
                f"{self.name} has too few documents to hold {holdout:g} of them out: "
                "set data.valid or another data.separator"
            )

    def held_by_size(self, holdout: float) -> set[int] | None:
        """The indices of the held-out documents, if the hash of the index would choose badly.

        Few documents may hold less than half or more than twice the fraction `holdout` of the text.
        Then each document, in the order of the hash, is held out if it brings the held-out text
        nearer to the fraction. If that is less than half of it, the smallest other document is held
        out too. None: the hash of the index decides.
        """
        sizes, wanted = self.sizes, holdout * sum(self.sizes)
        order = sorted(range(len(sizes)), key=_index_hash)
        by_hash = sum(sizes[index] for index in order if _index_hash(index) < holdout * 2**64)
        if wanted / 2 <= by_hash <= min(2 * wanted, (sum(sizes) + wanted) / 2):
            return None
        chosen, size = set(), 0
        for index in order:
            if abs(size + sizes[index] - wanted) < abs(size - wanted):
                chosen.add(index)
                size += sizes[index]
        others = [index for index in order if index not in chosen]
        if not chosen or (size < wanted / 2 and len(others) > 1):
            chosen.add(min(others, key=lambda index: sizes[index]))
        return chosen

    def _split(
        self, is_held: Callable[[int], bool], held: bool, spool: "DocumentSpool | None"
    ) -> Iterator[str]:
        if spool is not None:
            spool.clear()
        for index, document in enumerate(self):
            if is_held(index) == held:
                yield document
            elif spool is not None:
                spool.add(document)
        if spool is not None:
            spool.complete = True


class Source(ABC):
    """Opens the corpora of a scheme such as `hf:`. Its registered name ends with the colon."""

    anywhere: ClassVar[bool] = False  # True if a name means the same text on every machine

    @classmethod
    @abstractmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """The corpus of a source.

        Args:
            spec: the name of the source after the scheme.
            fields: the settings that turn files and records into documents.

        Returns:
            The corpus; opening reads no documents.
        """


SOURCES: Registry[Source] = Registry("source")


class DocumentSpool:
    """Documents in a temporary file, written during a pass over a corpus and read back once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Any = None
        self.complete = False  # True after a full pass has written all documents

    def clear(self) -> None:
        """Removes all documents and opens an empty file."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(self._folder))  # noqa: SIM115

    def close(self) -> None:
        """Deletes the temporary file."""
        if self._file is not None:
            self._file.close()
        self._file, self.complete = None, False

    def add(self, document: str) -> None:
        """Appends a document with its class label or its source."""
        label_and_source = [getattr(document, name, None) for name in ("label", "source")]
        line = json.dumps([type(document).__name__, document, *label_and_source])
        self._file.write(line.encode() + b"\n")

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        for line in self._file:
            kind, text, label, source = json.loads(line)
            if kind == Pair.__name__:
                yield Pair(source, text)
            else:
                yield Labelled(text, label) if kind == Labelled.__name__ else text
        self.close()


def sample(documents: Iterable[str], most: float, folder: Path) -> Iterator[str]:
    """The texts of the documents, or of an even sample of about `most` characters if they have more.

    The documents are read once. Candidates are written to a temporary file in `folder`. The share
    that is sampled only falls during the pass, so the final sample is among the candidates.
    """
    candidates, hashes, total = DocumentSpool(folder), array("Q"), 0
    candidates.clear()
    try:
        for index, document in enumerate(documents):
            total += sum(map(len, sides([document])))
            if _index_hash(index) < _hash_limit(most, total):
                candidates.add(document)
                hashes.append(_index_hash(index))
    except BaseException:
        candidates.close()
        raise
    limit, found = _hash_limit(most, total), zip(hashes, candidates, strict=True)
    return sides(document for hashed, document in found if hashed < limit)


def beginning(texts: Iterable[str], most: int) -> Iterator[str]:
    """The first texts, up to the one with which they have `most` characters or more."""
    for text in texts:
        yield text
        most -= len(text)
        if most <= 0:
            return


def _index_hash(index: int) -> int:
    """A hash below 2^64 of a document's index; the hashes of neighbouring indices are far apart."""
    return index * _HASH_FRACTION % 2**64


def _hash_limit(most: float, total: int) -> int:
    """The limit below which a share `most / total` of all index hashes falls."""
    return int(min(most / max(1, total), 1) * 2**64)


def hash_documents(documents: Iterable[str]) -> str:
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


def python_topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave this module out
        raise UnmaskError(
            "builtin:pydoc is missing, since this Python came without its documentation: set "
            "data.train to a file or a folder"
        ) from None
    return topics
