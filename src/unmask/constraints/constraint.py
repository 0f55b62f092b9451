"""Constraint on a text: a regular expression, phrases, and allowed tokens by position."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from unmask.constraints.budget import Budget
from unmask.constraints.byte_automaton import ByteMachine, banned, containing
from unmask.constraints.json_schema import json_schema
from unmask.constraints.regex import regex
from unmask.errors import UnmaskError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Constraint:
    """A constraint: the text matches `regex`, contains all `include` phrases and no `ban` phrase.

    With `json_schema` the text is JSON that matches the schema.
    `allowed` has the allowed token ids of some columns.

    Example:
        >>> [name for name, _ in Constraint(regex="[a-z ]+", ban=("cat",)).machines()]
        ['the regular expression', 'the banned phrases']
    """

    regex: str | None = None
    ban: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    allowed: Mapping[int, Collection[int]] = field(default_factory=dict)
    json_schema: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for phrase in (*self.ban, *self.include):
            if not phrase:
                raise UnmaskError("a phrase to ban or include is empty: leave it out")
            _bytes(phrase)
        for phrase in self.include:
            for other in self.ban:
                if other in phrase:
                    raise UnmaskError(
                        f"{quoted(phrase)} is to be included and contains {quoted(other)}, which is "
                        "banned: drop one of them"
                    )

    def __bool__(self) -> bool:
        return self != Constraint()

    def machines(self, budget: Budget | None = None) -> list[tuple[str, ByteMachine]]:
        """The automata of the parts of the constraint, without `allowed`.

        Args:
            budget: Limits of all automata together; by default those of `LIMITS`.

        Returns:
            Names for messages, with the automata over bytes.
        """
        budget = budget or Budget()
        machines: list[tuple[str, ByteMachine]] = []
        if self.regex is not None:
            machines.append(("the regular expression", regex(self.regex, budget)))
        if self.json_schema is not None:
            machines.append(("the JSON schema", json_schema(self.json_schema, budget)))
        if self.ban:
            name = "the banned phrases"
            machines.append((name, banned(map(_bytes, self.ban), budget, name)))
            if any(REPLACEMENT in phrase for phrase in self.ban):
                # invalid UTF-8 is decoded to the replacement character too
                machines.append(("whole characters", regex("(?s).*", budget)))
        for phrase in self.include:
            name = f"the phrase {quoted(phrase)}"
            machines.append((name, containing([_bytes(phrase)], budget, name)))
        return machines


def _bytes(phrase: str) -> bytes:
    try:
        return phrase.encode()
    except UnicodeEncodeError:
        raise UnmaskError(
            f"the phrase {quoted(phrase)} holds a lone surrogate, which is no text: remove it"
        ) from None


SHOWN = 60  # characters of a text in a message


def quoted(text: str) -> str:
    """A text in quotes, cut to SHOWN characters."""
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")
