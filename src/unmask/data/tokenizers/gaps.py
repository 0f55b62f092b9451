"""Text with gaps: "[MASK]" is a gap of one token, "[MASK:4]" of four.

Each piece of text around the gaps is encoded separately. Tokens of subwords (BPE, WordPiece)
include the space before their word. So one space directly before a gap is removed, since the gap's
first token includes it. With characters and bytes every character is kept.
"""

import re

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError

LONGEST_BLANK = 65_536
_BLANK = re.compile(r"\[MASK(?::([^\]]*))?\]")
_MISSPELT = re.compile(r"\[mask\b[^\]]{0,9}\]", re.IGNORECASE)


def parse_blanks(text: str, tokenizer: Tokenizer) -> list[int]:
    """The ids of a text, with the mask id at each token of a gap."""
    for found in _MISSPELT.findall(text):
        if not _BLANK.fullmatch(found):
            raise UnmaskError(f"{found!r} is no gap: write [MASK], or [MASK:4] for four tokens")
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
    """The number of tokens in the gaps of a text."""
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
