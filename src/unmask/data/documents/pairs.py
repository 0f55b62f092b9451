"""Pairs: a given source text and the target text that the model predicts from it."""

from collections.abc import Iterable, Iterator

from unmask.errors import UnmaskError


class Pair(str):
    """A target text with its source text."""

    source: str

    def __new__(cls, source: str, target: str) -> "Pair":
        pair = super().__new__(cls, target)
        pair.source = source
        return pair


def source_of(document: str) -> str:
    """The source text of a document; an error if it is not a pair."""
    if not isinstance(document, Pair):
        raise UnmaskError("this model was trained on pairs: give (source, target), not text alone")
    return document.source


def pair_of(source: str, target: str, location: str, fields: tuple[str, str]) -> str:
    """A pair; an empty document if both sides are blank; an error if only one is blank."""
    blank = [name for name, side in zip(fields, (source, target), strict=True) if not side.strip()]
    if len(blank) == 1:
        raise UnmaskError(f"{location}: {blank[0]!r} is empty; a pair needs both sides")
    return "" if blank else Pair(source, target)


def sides(documents: Iterable[str]) -> Iterator[str]:
    """The texts that a tokenizer learns from: documents, and source and target of pairs."""
    for document in documents:
        if isinstance(document, Pair):
            yield document.source
        yield document
