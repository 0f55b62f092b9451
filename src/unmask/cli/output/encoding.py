"""Output in an encoding that lacks some characters: each has a spelling that every encoding has."""

import codecs
import io
import sys

_NAME = "unmask.spelt"
_SPELLINGS = {
    "≤": "<=", "≥": ">=", "±": "+-", "·": "-", "×": "x", "…": "...", "–": "-", "—": "-", "→": "->",
    "░": "#", "█": "#",
}  # fmt: skip


def spell_what_is_missing() -> None:
    """Lets standard output and standard error write any text: a character may come out as its spelling."""
    codecs.register_error(_NAME, _spelt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)


def _spelt(error: UnicodeError) -> tuple[str | bytes, int]:
    """The spelling of one character, or its escape; a byte of a name that was no text is that byte again."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # as `surrogateescape` reads them
        return bytes([code - 0xDC00]), error.start + 1
    spelling = _SPELLINGS.get(character) or character.encode("ascii", "backslashreplace").decode()
    return spelling, error.start + 1
