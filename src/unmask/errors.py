"""The one exception that a user causes and a user can mend: the command line prints it as one line and exits with 2."""

import difflib
from collections.abc import Iterable


class UnmaskError(Exception):
    """Something the user can mend; the message says what and how, in one line."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UnmaskError:
    """An error for a name that does not exist, with the nearest one that does."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return UnmaskError(f"unknown {kind} {name!r}; {hint}")
