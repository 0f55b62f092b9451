"""Documents from wherever text lives, one at a time, and a hash of their content.

A source is `builtin:pydoc`, a file, a folder, `-` (standard input, plain text), parallel files
(`train.{de,en}`), or `hf:OWNER/NAME[/CONFIG][:SPLIT]` (a dataset of the hub; the split is `train`
unless named).
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from unmask.data.documents.labels import Labelled
from unmask.data.documents.pairs import Pair, sides
from unmask.data.documents.read_errors import Faults
from unmask.errors import UnmaskError

ELSEWHERE = "elsewhere:"  # before the name of a file on the machine that a model comes from
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
