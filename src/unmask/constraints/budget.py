"""Limits of a constraint: all that a compilation builds is counted, and a limit ends it with one line."""

from collections import Counter

from unmask.cancellation import raise_if_cancelled
from unmask.errors import UnmaskError

# With these limits the largest accepted constraint takes about two seconds on one core.
LIMITS = {
    "characters": 2**17,  # of patterns, schemas as JSON and phrases, before they are read
    "NFA states": 2**14,  # of the nondeterministic automata
    "states": 2**12,  # of one automaton
    "transitions": 2**20,  # states times classes of bytes, of one automaton
    "steps": 2**20,  # of loops in Python, about a microsecond each
    "cells": 2**28,  # of tables that numpy computes, about a nanosecond each
    "bytes": 2**26,  # of the tables over the vocabulary
    "bytes of rows": 2**29,  # of the states at each position of the rows that are sampled
}
MOST_LEVELS = 150  # of nested parts of an expression; recursive functions follow them


class Budget:
    """The cost of one compilation so far, and its limits.

    Example:
        >>> budget = Budget()
        >>> budget.charge("steps", 5, "the regular expression")
        >>> budget.counts["steps"]
        5

    Args:
        factor: Multiplies each limit.
    """

    def __init__(self, factor: float = 1.0) -> None:
        if not factor > 0:
            raise UnmaskError(f"constraint_budget must be positive, not {factor:g}")
        self.factor = factor
        self.counts: Counter[str] = Counter()

    def charge(self, name: str, amount: int, subject: str = "the constraint") -> None:
        """Adds to a count. Raises an error above its limit, and in a job that is cancelled.

        Args:
            name: A key of `LIMITS`.
            amount: The amount to add.
            subject: The part of the constraint, for the message.

        Example:
            >>> Budget(factor=0.5).charge("states", 3000, "the phrases")
            Traceback (most recent call last):
            unmask.errors.UnmaskError: the phrases need more than 2048 states…
        """
        self.counts[name] += amount
        self._check(name, self.counts[name], subject)

    def reach(self, name: str, size: int, subject: str = "the constraint") -> None:
        """Records the size of one automaton, where a limit holds for each and not for their sum.

        Args:
            name: A key of `LIMITS`.
            size: The size so far.
            subject: The part of the constraint, for the message.
        """
        self.counts[name] = max(self.counts[name], size)
        self._check(name, size, subject)

    def _check(self, name: str, amount: int, subject: str) -> None:
        raise_if_cancelled()
        limit = int(LIMITS[name] * self.factor)
        if amount > limit:
            verb = "need" if subject.endswith("s") else "needs"
            raise UnmaskError(
                f"{subject} {verb} more than {limit} {name}: {_REMEDIES.get(name, _SHORTEN)}, or "
                f"raise --constraint-budget, here {self.factor:g}"
            )


def check_levels(levels: int, most: int = MOST_LEVELS) -> int:
    """Raises an error for a part with too many nested parts, for which recursion would be too deep.

    Args:
        levels: The number of nested parts.
        most: The largest number that is allowed.

    Returns:
        The same number.
    """
    if levels > most:
        raise UnmaskError(
            f"a pattern or schema has more than {most} nested levels: make it flatter"
        )
    return levels


_SHORTEN = "shorten or simplify the pattern, schema or phrases"
_REMEDIES = {
    "states": "shorten repeats and phrases, or begin a pattern with (?a) if its \\w, \\d and \\s are ASCII",
    "bytes of rows": "ask for fewer or shorter texts at a time",
}
