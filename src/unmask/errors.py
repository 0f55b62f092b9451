"""The one exception that a user causes and a user can mend: the command line prints it as one line and exits with 2."""

import difflib
from collections.abc import Iterable

_LONGEST = 2000  # characters of a message


class UnmaskError(Exception):
    """Something the user can mend; the message says what and how, in one line.

    What a file holds may be part of a message: line ends and other control characters are escaped,
    so that nobody's file speaks to a terminal.
    """

    def __init__(self, message: str) -> None:
        shown = "".join(c if c.isprintable() else _escaped(c) for c in message[: _LONGEST + 1])
        super().__init__(shown if len(message) <= _LONGEST else f"{shown[:_LONGEST]}…")


class UnmaskWarning(UserWarning):
    """Something that works and that a user may want to change; the command line prints it as one line."""


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def unknown(kind: str, name: str, known: Iterable[str]) -> UnmaskError:
    """An error for a name that does not exist, with the nearest one that does."""
    known = sorted(known)
    near = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return UnmaskError(f"unknown {kind} {name!r}; {hint}")
