"""Options as dataclass fields, each with type, default, range and help.

The command line, the server's schema, the harness and the playground are generated from them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from numbers import Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from unmask.errors import UnmaskError, unknown

SURFACES = ("cli", "http", "harness", "play")
_KEY = "unmask.option"


@dataclass(frozen=True)
class Option:
    """One option: a dataclass field with its type, default, range and help."""

    name: str
    hint: Any
    default: Any
    help: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    among: tuple[Any, ...] = ()
    metavar: str = ""
    group: str = ""
    repeat: bool = False
    on: tuple[str, ...] = SURFACES

    @property
    def _members(self) -> tuple[Any, ...]:
        """The members of a union without None, or the type itself."""
        union = get_origin(self.hint) in (Union, UnionType)
        members = get_args(self.hint) if union else (self.hint,)
        return tuple(member for member in members if member is not NoneType)

    @property
    def required(self) -> bool:
        """True if the option has no default."""
        return self.default is MISSING

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values of a Literal type, or those listed with the field; empty if there are none."""
        return get_args(self._item) if get_origin(self._item) is Literal else self.among

    @property
    def many(self) -> bool:
        """True if the value is a sequence."""
        return get_origin(self._members[0]) in (Sequence, list, tuple)

    @property
    def kind(self) -> type:
        """The type of one value: bool, int, float, Path, or str for all others."""
        kind = type(self.choices[0]) if self.choices else self._item
        return kind if kind in (bool, int, float, Path) else str

    @property
    def number(self) -> bool:
        """True if the type is bool, int or float, or a union of these and None."""
        return all(member in (bool, int, float) for member in self._members)

    @property
    def _item(self) -> Any:
        first = self._members[0]
        return get_args(first)[0] if self.many else first

    @property
    def range(self) -> str:
        """The allowed range in words, such as "in (0, 1]"; empty if all values are allowed."""
        if self.lt == math.inf:
            return f"finite and {replace(self, lt=None).range}"
        if (self.gt is not None or self.lt is not None) and None not in (self._low, self._high):
            left, right = "[" if self.gt is None else "(", "]" if self.lt is None else ")"
            return f"in {left}{_number(self._low)}, {_number(self._high)}{right}"
        low = f"{_number(self.ge)} or more" if self.ge is not None else ""
        low = f"above {_number(self.gt)}" if self.gt is not None else low
        high = f"{_number(self.le)} at most" if self.le is not None else ""
        high = f"below {_number(self.lt)}" if self.lt is not None else high
        return ", and ".join(filter(None, (low, high)))

    @property
    def _low(self) -> float | None:
        return self.ge if self.gt is None else self.gt

    @property
    def _high(self) -> float | None:
        return self.le if self.lt is None else self.lt

    def check(self, value: Any) -> None:
        """Raises an error for a number out of range, an unknown choice,
        or a value of another type.
        """
        if value is None:
            return
        if self.many and isinstance(value, list | tuple):
            for item in value:
                self.check(item)
            return
        if self.choices and value not in self.choices:
            raise unknown(self.name, str(value), map(str, self.choices))
        if self._members == (str,) and not isinstance(value, str):
            raise UnmaskError(f"{self.name} must be text, not {value}")
        if self.number and bool not in self._members and not isinstance(value, Real):
            raise UnmaskError(f"{self.name} must be a number, not {value!r}")
        if self._members == (int,) and isinstance(value, float) and not value.is_integer():
            raise UnmaskError(f"{self.name} must be a whole number, not {value}")
        if isinstance(value, Real) and not self._within(value):
            verb = "lie" if self.range.startswith("in") else "be"
            raise UnmaskError(f"{self.name} must {verb} {self.range}, not {value}")

    def _within(self, value: Any) -> bool:
        """True if a number is in the range; NaN is in none."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )


def option(
    default: Any = MISSING,
    *,
    help: str = "",
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    among: Iterable[Any] = (),
    metavar: str = "",
    group: str = "",
    repeat: bool = False,
    on: tuple[str, ...] = SURFACES,
) -> Any:
    """A dataclass field that is an option on the command line, the server,
    the harness and the playground.

    Args:
        default: Default value; a list or dict is copied for each instance.
        help: One sentence for `--help` and the server's schema.
        ge: Smallest value.
        gt: Limit that a value must exceed.
        le: Largest value.
        lt: Limit that a value must stay below; infinity allows all finite values.
        among: Allowed values, for a type that is no Literal.
        metavar: Name of the value in `--help`; N or X for numbers by default.
        group: Heading of the option in `--help`.
        repeat: True for a sequence with one flag per value, False for one flag with all values.
        on: Surfaces that show the option: cli, http, harness, play.

    Returns:
        The field.

    Example:
        >>> @dataclass(frozen=True)
        ... class Options:
        ...     mass: float = option(0.9, gt=0, le=1, help="Share of the probability to keep.")
        >>> options_of(Options)[0].range
        'in (0, 1]'
    """
    bounds = {"ge": ge, "gt": gt, "le": le, "lt": lt, "among": tuple(among)}
    about = {"help": help, "metavar": metavar, "group": group, "repeat": repeat, "on": on}
    metadata = {_KEY: bounds | about}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(cls: type, surface: str | None = None) -> list[Option]:
    """The options of a dataclass in the order of its fields: all, or those of one surface."""
    return [one for one in _all_options(cls) if surface is None or surface in one.on]


def check_options(options: Any, section: str = "") -> None:
    """Raises an error for the first option whose value is not allowed.

    Args:
        options: A dataclass, whose `__post_init__` calls this function.
        section: Section of the configuration that precedes the names, such as "training.".

    Example:
        >>> @dataclass(frozen=True)
        ... class Options:
        ...     mass: float = option(0.9, gt=0, le=1)
        ...
        ...     def __post_init__(self) -> None:
        ...         check_options(self)
        >>> Options(mass=2)
        Traceback (most recent call last):
        unmask.errors.UnmaskError: mass must lie in (0, 1], not 2
    """
    for one in options_of(type(options)):
        replace(one, name=section + one.name).check(getattr(options, one.name))


class Checked:
    """Base class of dataclasses whose options are checked when an instance is made."""

    def __post_init__(self) -> None:
        check_options(self)


@cache
def _all_options(cls: type) -> tuple[Option, ...]:
    hints = get_type_hints(cls)
    found = []
    for part in fields(cls):
        if not part.init:
            continue
        default = part.default if part.default_factory is MISSING else part.default_factory()
        about = part.metadata.get(_KEY, {})
        found.append(Option(part.name, hints[part.name], default, **about))
    return tuple(found)


def _number(value: float | None) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def changed_options(options: Any) -> dict[str, Any]:
    """The options that differ from their defaults, by name."""
    values = {one.name: getattr(options, one.name) for one in options_of(type(options))}
    defaults = {one.name: one.default for one in options_of(type(options))}
    return {name: value for name, value in values.items() if value != defaults[name]}
