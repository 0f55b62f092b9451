"""Pairs: a source that is given, and the target that a model learns to write for it."""

from collections.abc import Iterable, Iterator

from unmask.errors import UnmaskError


class Pair(str):
    """A target, with its source."""

    source: str

    def __new__(cls, source: str, target: str) -> "Pair":
        pair = super().__new__(cls, target)
        pair.source = source
        return pair


def source_of(document: str) -> str:
    """The source of a document, which must be a pair."""
    if not isinstance(document, Pair):
        raise UnmaskError("this model reads pairs: give (source, target), not text alone")
    return document.source


def pair_of(source: str, target: str, place: str, fields: tuple[str, str]) -> str:
    """Both sides as a pair; nothing, if both are blank: one alone is a mistake."""
    blank = [name for name, side in zip(fields, (source, target), strict=True) if not side.strip()]
    if len(blank) == 1:
        raise UnmaskError(f"{place}: {blank[0]!r} is empty; a pair needs both sides")
    return "" if blank else Pair(source, target)


def sides(documents: Iterable[str]) -> Iterator[str]:
    """All text, of which a tokenizer learns: both sides of pairs."""
    for document in documents:
        if isinstance(document, Pair):
            yield document.source
        yield document
