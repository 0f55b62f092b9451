"""Regular expressions as graphs: parts may be shared, and every part knows how deeply it is nested."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from unmask.constraints.budget import check_levels

Edges = tuple[tuple[int, bytes, int], ...]  # from state 0 to 1; bytes: 256 bools, True at each byte


@dataclass(frozen=True, eq=False)
class Characters:
    """One character of a set, as edges over its bytes."""

    edges: Edges
    levels: int = 1


@dataclass(frozen=True, eq=False)
class Chain:
    """Parts one after the other; no parts match the empty text."""

    parts: "tuple[Expression, ...]"
    levels: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _levels(self.parts))


@dataclass(frozen=True, eq=False)
class Choice:
    """Any one of several parts; no parts match no text."""

    parts: "tuple[Expression, ...]"
    levels: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _levels(self.parts))


@dataclass(frozen=True, eq=False)
class Repeat:
    """A part, `least` to `most` times; without `most` any number of times."""

    part: "Expression"
    least: int
    most: int | None
    levels: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _levels((self.part,)))


@dataclass(frozen=True, eq=False)
class Members:
    """Parts in order, each of which must or may occur, with a separator between those that occur."""

    parts: "tuple[tuple[Expression, bool], ...]"  # with True if it must occur
    separator: "Expression"
    levels: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _levels(part for part, _ in self.parts))


Expression = Characters | Chain | Choice | Repeat | Members


def either(parts: Iterable["Expression"]) -> Expression:
    """Any one of the parts; equal parts count once."""
    distinct = tuple({id(part): part for part in parts}.values())
    return distinct[0] if len(distinct) == 1 else Choice(distinct)


def text(content: str) -> Expression:
    """Exactly this text; a text with a lone surrogate has no bytes, so nothing matches it."""
    try:
        return Chain(tuple(map(byte, content.encode())))
    except UnicodeEncodeError:
        return NOTHING


@cache
def byte(value: int) -> Characters:
    """One byte."""
    member = bytearray(256)
    member[value] = True
    return Characters(((0, bytes(member), 1),))


def _levels(parts: "Iterable[Expression]") -> int:
    return check_levels(1 + max((part.levels for part in parts), default=0))


EMPTY, NOTHING = Chain(()), Choice(())  # the empty text, and no text
