"""A BM25 index of passages."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from unmask.data.corpora import finite
from unmask.data.documents.fields import Fields
from unmask.data.sources.open_source import open_corpus
from unmask.errors import UnmaskError
from unmask.imports import extra

# words of two letters or more, and single characters of Chinese and Japanese
_CHARACTERS = "\u3040-\u30ff\u3400-\u9fff"
_WORD = rf"[{_CHARACTERS}]|[^\W{_CHARACTERS}]{{2,}}"
_BLANK = re.compile(r"\n\s*\n")
_LONGEST, _SHORT = (
    1200,
    200,
)  # characters: a longer paragraph is split at line ends into such pieces


class Retriever:
    """A BM25 index of passages (Robertson and Zaragoza, 2009), with the library bm25s.

    Args:
        passages: the passages, such as paragraphs of a text; blank ones are left out.

    Example:
        >>> Retriever(["Cats sleep a lot.", "The moon has no air."]).search("Who slept? A cat?", 1)
        ['Cats sleep a lot.']
    """

    def __init__(self, passages: Iterable[str]) -> None:
        self._bm25s = extra("bm25s", "retrieval", "retrieve")
        self.passages = [text for text in map(str.strip, passages) if text]
        if not self.passages:
            raise UnmaskError("there are no passages to search: give a text with paragraphs")
        self._index, words = self._bm25s.BM25(), self._words(self.passages)
        if not any(words.ids):
            raise UnmaskError("the passages to search have no words: give a text with words")
        self._index.index(words, show_progress=False)

    @classmethod
    def of(cls, source: str) -> "Retriever":
        """The index of the paragraphs of a data source, as `read_passages` returns them.

        Args:
            source: a file, a folder, or another data source.

        Returns:
            The index.
        """
        extra("bm25s", "retrieval", "retrieve")  # before the text is read
        return cls(read_passages(source))

    def search(self, query: str, k: int = 8) -> list[str]:
        """The passages that fit a query best, best first; none without a common word.

        A word has two letters or more, or is a character of Chinese or Japanese.

        Args:
            query: a text.
            k: the most passages.

        Returns:
            Up to k passages.
        """
        if k < 1:
            raise UnmaskError(f"the number of passages must be 1 or more, not {k}")
        found, scores = self._index.retrieve(
            self._words([query]), k=min(k, len(self.passages)), show_progress=False
        )
        return [self.passages[i] for i, score in zip(found[0], scores[0], strict=True) if score > 0]

    def _words(self, texts: Sequence[str]) -> Any:
        return self._bm25s.tokenize(
            list(texts), token_pattern=_WORD, stopwords=[], show_progress=False
        )


def read_passages(source: str) -> Iterator[str]:
    """The paragraphs of a data source; a long one is split at line ends.

    Args:
        source: a file, a folder, or another data source.

    Returns:
        The passages, which may be blank.
    """
    for document in finite(open_corpus(source, Fields("auto", "text"))).read():
        for paragraph in _BLANK.split(document):
            if len(paragraph) <= _LONGEST:
                yield paragraph
                continue
            piece = ""
            for line in paragraph.splitlines(keepends=True):
                piece += line
                if len(piece) >= _SHORT:
                    yield piece
                    piece = ""
            yield piece
