"""Text with gaps: "[MASK]" is one token to fill, "[MASK:4]" is four.

Each piece of text around the gaps is encoded by itself. Where tokens carry the space before their
word (BPE, WordPiece), one space directly before a gap belongs to the gap's first token and is left
out; characters and bytes keep every character.
"""

import re

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError

LONGEST_BLANK = 65_536
_BLANK = re.compile(r"\[MASK(?::([^\]]*))?\]")


def parse_blanks(text: str, tokenizer: Tokenizer) -> list[int]:
    """The ids of a text, the mask id wherever it has a gap."""
    ids: list[int] = []
    start = 0
    for blank in _BLANK.finditer(text):
        piece = text[start : blank.start()]
        if tokenizer.leading_space:
            piece = piece.removesuffix(" ")
        ids += tokenizer.encode(piece) + [tokenizer.vocabulary.mask_id] * _width(blank)
        start = blank.end()
    return ids + tokenizer.encode(text[start:])


def count_blanks(text: str) -> int:
    """How many tokens the gaps of a text ask for."""
    return sum(_width(blank) for blank in _BLANK.finditer(text))


def _width(blank: re.Match[str]) -> int:
    count = blank[1]
    if count is None:
        return 1
    digits = count.isascii() and count.isdigit() and len(count) <= len(str(LONGEST_BLANK))
    if not digits or not 1 <= int(count) <= LONGEST_BLANK:
        raise UnmaskError(
            f"{blank[0][:40]!r} is no gap: write [MASK] or [MASK:n] with n from 1 to {LONGEST_BLANK}"
        )
    return int(count)
