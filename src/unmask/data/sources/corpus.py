"""Documents from wherever text lives, one at a time, and a hash of their content; the registry of sources.

A source is `builtin:pydoc`, a file, a folder, `-` (standard input, plain text), parallel files
(`train.{de,en}`), `hf:OWNER/NAME[/CONFIG][:SPLIT]` (a dataset of the hub; the split is `train`
unless named), or what a plugin opens.
"""

import hashlib
import json
import tempfile
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from unmask.data.documents.fields import Fields
from unmask.data.documents.labels import Labelled
from unmask.data.documents.pairs import Pair, sides
from unmask.data.documents.read_errors import ReadErrors
from unmask.errors import UnmaskError
from unmask.registry import Registry

ELSEWHERE = "elsewhere:"  # before the name of a file on the machine that a model comes from
_HASH_FRACTION = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio
_IN_MEMORY = 2**26  # bytes of documents that are set aside in memory; more go to the disk


@dataclass(frozen=True)
class Corpus:
    """Documents that can be read again and again, and the hash of what they are read from.

    A stream has no hash: it may have no end, nothing is held out of it, and its rows are kept nowhere.
    """

    name: str
    read: Callable[[], Iterator[str]]
    hash_content: Callable[[], str] | None
    has_fields: bool = False  # beside the text: plain text has none
    faults: ReadErrors = field(default_factory=ReadErrors)  # of the last reading
    read_on: Callable[[int], Iterator[str]] | None = None  # the documents from a number on

    @classmethod
    def stream(
        cls, name: str, documents: Callable[[int], Iterator[str]], has_fields: bool = False
    ) -> "Corpus":
        """A corpus without an end, or one whose end is far.

        Args:
            name: the source as a user gave it.
            documents: the documents from a number on (0 is the first), the same at each call.
            has_fields: True if documents can be pairs.

        Example:
            >>> from itertools import count
            >>> squares = Corpus.stream("squares:", lambda start: (str(n * n) for n in count(start)))
            >>> next(squares.documents(12)), squares.digest
            ('144', None)
        """
        return cls(name, partial(documents, 0), None, has_fields, read_on=documents)

    @cached_property
    def digest(self) -> str | None:
        """The hash of the content, wherever it lies, taken once; None of a stream."""
        return self.hash_content() if self.hash_content else None

    @property
    def endless(self) -> bool:
        """True of a stream."""
        return self.hash_content is None

    def documents(self, start: int) -> Iterator[str]:
        """The documents from a number on, blank ones included."""
        return self.read_on(start) if self.read_on else islice(self.read(), start, None)

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

    def part(self, holdout: float, held: bool, aside: "SetAside | None" = None) -> Iterator[str]:
        """The held-out documents, or the others: a spread fraction that depends on the index only.

        A reading of the others puts the held-out ones `aside`. A reading of the held-out ones after it
        takes them from there, so that one reading of the corpus serves both.
        """
        border, empty = int(holdout * 2**64), True
        if held and aside is not None and aside.complete:
            found: Iterator[str] = iter(aside)
        else:
            found = self._divided(border, held, None if held else aside)
        for document in found:
            empty = False
            yield document
        if empty:
            raise UnmaskError(
                f"{self.name} has too few documents to hold {holdout:g} of them out; "
                "give data.valid or another data.separator"
            )

    def _divided(self, border: int, held: bool, aside: "SetAside | None") -> Iterator[str]:
        if aside is not None:
            aside.clear()
        for index, document in enumerate(self):
            if (_spread(index) < border) == held:
                yield document
            elif aside is not None:
                aside.add(document)
        if aside is not None:
            aside.complete = True


class Source(ABC):
    """Opens the corpora of a scheme, such as `hf:`; the registered name ends with the colon."""

    anywhere: ClassVar[bool] = False  # a name means the same text on every machine

    @classmethod
    @abstractmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """The corpus of a source.

        Args:
            spec: the name of the source behind the scheme.
            fields: the settings by which files and records become documents.
        """


SOURCES: Registry[Source] = Registry("source")


class SetAside:
    """Documents in a temporary file of a folder, to be read once more without their source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Any = None
        self.complete = False  # set by the reading that fills it, at its end

    def clear(self) -> None:
        """Forgets all documents and takes new ones."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(self._folder))  # noqa: SIM115

    def close(self) -> None:
        """Gives the file back."""
        if self._file is not None:
            self._file.close()
        self._file, self.complete = None, False

    def add(self, document: str) -> None:
        """Puts a document behind the others."""
        more = [getattr(document, name, None) for name in ("label", "source")]
        line = json.dumps([type(document).__name__, document, *more])
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
    """The text of documents, or, if that is more than `most` characters, of a spread part of them.

    The documents are read once. The share that fits falls as they come, so that those of the final
    share are among those that were kept on the way, in a temporary file of the folder.
    """
    kept, places, total = SetAside(folder), array("Q"), 0
    kept.clear()
    for index, document in enumerate(documents):
        total += sum(map(len, sides([document])))
        if _spread(index) < _border(most, total):
            kept.add(document)
            places.append(_spread(index))
    border = _border(most, total)
    return sides(document for place, document in zip(places, kept, strict=True) if place < border)


def beginning(texts: Iterable[str], most: int) -> Iterator[str]:
    """The first texts, of `most` characters or a little more; a stream is read no further."""
    for text in texts:
        yield text
        most -= len(text)
        if most <= 0:
            return


def _spread(index: int) -> int:
    """A number below 2^64 that spreads neighbouring documents."""
    return index * _HASH_FRACTION % 2**64


def _border(most: float, total: int) -> int:
    """The bound of `_spread` below which lies the share of `total` that `most` is."""
    return int(min(most / max(1, total), 1) * 2**64)


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


def _python_topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # of a Python that was made small
        raise UnmaskError(
            "builtin:pydoc is not here, since this Python came without its documentation: set "
            "data.train to a file or a folder"
        ) from None
    return topics
