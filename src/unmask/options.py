"""Options declared once, as fields of a dataclass: the command line, the server's schema, the harness and
the playground read name, type, default, range and help from there."""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from unmask.errors import UnmaskError

SURFACES = ("cli", "http", "harness", "play")
_KEY = "unmask.option"


@dataclass(frozen=True)
class Option:
    """A field of a dataclass of options, with its type and what `option` declared of it."""

    name: str
    hint: Any
    default: Any
    help: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    metavar: str = ""
    group: str = ""
    on: tuple[str, ...] = SURFACES

    @property
    def several(self) -> bool:
        """A list or tuple of values."""
        return get_origin(_present(self.hint)) in (list, tuple, Sequence)

    @property
    def kind(self) -> Any:
        """The type of a value other than None; in a list, of each."""
        hint = _present(self.hint)
        return _present(get_args(hint)[0]) if self.several else hint

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values of a Literal type; nothing for other types."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def range(self) -> str:
        """The values that are allowed, in words; nothing if all are."""
        low = f"at least {self.ge:g}" if self.ge is not None else ""
        low = f"above {self.gt:g}" if self.gt is not None else low
        high = f"at most {self.le:g}" if self.le is not None else ""
        high = f"below {self.lt:g}" if self.lt is not None else high
        return " and ".join(filter(None, (low, high)))

    def check(self, value: Any) -> None:
        """Raises an error for a number outside the range or a value that is no choice; None passes."""
        if value is None:
            return
        if isinstance(value, list | tuple):
            for item in value:
                self.check(item)
            return
        if self.choices and value not in self.choices:
            known = ", ".join(map(str, self.choices))
            raise UnmaskError(f"{self.name} must be one of {known}, not {value}")
        outside = (
            (self.ge is not None and not value >= self.ge)
            or (self.gt is not None and not value > self.gt)
            or (self.le is not None and not value <= self.le)
            or (self.lt is not None and not value < self.lt)
        )
        if outside:
            raise UnmaskError(f"{self.name} must be {self.range}, not {value}")


def option(
    default: Any = MISSING,
    *,
    help: str = "",
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    metavar: str = "",
    group: str = "",
    on: tuple[str, ...] = SURFACES,
) -> Any:
    """A dataclass field that users can set on every surface.

    Args:
        default: the value where none is given; a list or dict is copied for each instance.
        help: one sentence, for `--help` and the server's schema.
        ge: the least value.
        gt: a value that must be exceeded.
        le: the largest value.
        lt: a value that must not be reached.
        metavar: the value's name in `--help`; N or X for numbers unless given.
        group: the heading in `--help` under which the option stands.
        on: the surfaces that show the option, of cli, http, harness and play.

    Example:
        >>> @dataclass(frozen=True)
        ... class Options:
        ...     mass: float = option(0.9, gt=0, le=1, help="Share of the probability to keep.")
        >>> options_of(Options)[0].range
        'above 0 and at most 1'
    """
    about = {"help": help, "ge": ge, "gt": gt, "le": le, "lt": lt, "metavar": metavar}
    metadata = {_KEY: {**about, "group": group, "on": on}}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(cls: type, surface: str | None = None) -> list[Option]:
    """The options of a dataclass in the order of its fields, all of them or those of one surface."""
    hints = get_type_hints(cls)
    found = []
    for part in fields(cls):
        if not part.init:
            continue
        default = part.default if part.default_factory is MISSING else part.default_factory()
        about = part.metadata.get(_KEY, {})
        found.append(Option(part.name, hints[part.name], default, **about))
    return [one for one in found if surface is None or surface in one.on]


def check_options(options: Any) -> None:
    """Raises an error for the first field of an options dataclass whose value is out of range."""
    for one in options_of(type(options)):
        one.check(getattr(options, one.name))


def changed_options(options: Any) -> dict[str, Any]:
    """The fields of an options dataclass that differ from their defaults."""
    values = {one.name: getattr(options, one.name) for one in options_of(type(options))}
    usual = {one.name: one.default for one in options_of(type(options))}
    return {name: value for name, value in values.items() if value != usual[name]}


def _present(hint: Any) -> Any:
    """The first member of a union that is not None, or the type itself."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return next(member for member in get_args(hint) if member is not NoneType)
