"""Division of plain text into documents, by a separator or by the form of the text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

AUTO = "auto"
MODES = (AUTO, "paragraph", "line", "file")
END = "<|endoftext|>"
RULES = "auto 1"  # version of the rules below; a part of the cache key
_READ = 2**22  # characters of a file that decide about its documents
_FEW = 20  # documents that a text has at least, so that some can be held out
_LONGEST = 2**28  # characters of a document; a longer one is split
_PIECE, _SMALL = 2000, 80  # most and fewest characters of a piece of text without structure
_ENDS = re.compile(r"[.!?…]['\"”’»)]*\s*$")
_SENTENCES = re.compile(r"(?<=[.!?…])\s+")


def documents_of(lines: Iterable[str], separator: str, one_of_many: bool = False) -> Iterator[str]:
    """The documents of the lines of a text.

    Args:
        lines: the lines with their line ends.
        separator: the line between two documents, "paragraph", "line", "file" or "auto".
        one_of_many: True if the text is one of many files of a folder; "auto" then keeps it whole.

    Returns:
        The documents; some may be blank.
    """
    if separator == AUTO:
        head, rest, whole = _head(lines)
        separator = _found(head, whole, one_of_many)
        size = sum(map(len, head)) // (2 * _FEW) if whole else _PIECE
        lines = chain(head, rest)
        if separator == "piece":
            return _pieces(lines, min(max(size, _SMALL), _PIECE))
    if separator == "line":
        return (line.removesuffix("\n") for line in lines)
    return _separated(lines, separator)


def _head(lines: Iterable[str]) -> tuple[list[str], Iterator[str], bool]:
    """The first lines, the others, and True if there are no others."""
    head, size, rest = [], 0, iter(lines)
    for line in rest:
        head.append(line)
        size += len(line)
        if size > _READ:
            return head, rest, False
    return head, rest, True


def _found(head: Sequence[str], whole: bool, one_of_many: bool) -> str:
    """The separator that a text has by its first lines; "piece" if it has none."""
    lines = [line.strip() for line in head]
    if END in lines and any(lines[: lines.index(END)]) and any(lines[lines.index(END) + 1 :]):
        return END
    if one_of_many and whole:
        return "file"
    filled = [line for line in lines if line]
    paragraphs = sum(bool(line) and not before for before, line in pairwise(["", *lines]))
    if paragraphs >= _FEW or (paragraphs > 1 and not whole):
        return "paragraph"
    return "line" if len(filled) >= _FEW and not _wrapped(filled) else "piece"


def _wrapped(lines: Sequence[str]) -> bool:
    """True if the lines are prose that was broken at a width: equal in length, sentences go on."""
    widths = sorted(map(len, lines))
    width = widths[len(widths) * 9 // 10]
    full = sum(len(line) >= 0.6 * width for line in lines)
    broken = sum(after[0].islower() and not _ENDS.search(line) for line, after in pairwise(lines))
    return 40 <= width <= 200 and full >= 0.7 * len(lines) and broken >= 0.4 * len(lines)


def _separated(lines: Iterable[str], separator: str) -> Iterator[str]:
    """The documents between separator lines, between blank lines, or one for the file."""
    document: list[str] = []
    size = 0
    between = "" if separator == "paragraph" else separator
    for line in lines:
        ends = separator != "file" and line.strip() == between
        if ends or size > _LONGEST:
            yield "".join(document).removesuffix("\n")
            document, size = [], 0
        if not ends:
            document.append(line)
            size += len(line)
    yield "".join(document).removesuffix("\n")


def _pieces(lines: Iterable[str], size: int) -> Iterator[str]:
    """Pieces of about `size` characters that end with a sentence, or else with a line."""
    piece, held = [], 0
    for part in chain.from_iterable(_parts(line, size) for line in lines):
        piece.append(part)
        held += len(part)
        if held >= 2 * size or (held >= size and _ENDS.search(part)):
            yield "".join(piece).strip("\n")
            piece, held = [], 0
    yield "".join(piece).strip("\n")


def _parts(line: str, size: int) -> Iterator[str]:
    """A line, or the sentences of a long line; a sentence that is too long is cut."""
    if len(line) <= 2 * size:
        yield line
        return
    start = 0
    for end in [*(gap.end() for gap in _SENTENCES.finditer(line)), len(line)]:
        while end - start > 2 * size:
            cut = line.rfind(" ", start, start + size) + 1 or start + size
            yield line[start:cut]
            start = cut
        yield line[start:end]
        start = end
