"""Conversion of configuration values and option values to their declared types."""

import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from unmask.errors import UnmaskError
from unmask.options import Option

_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NONE = ("none", "null")
_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number"}


def read_value(hint: Any, value: Any) -> Any:
    """Converts a value, for example a string, to type `hint`; raises ValueError if it cannot.

    The type is a scalar, a Literal, a list or tuple of these, or `X | None`.
    """
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        absent = types.NoneType in inner and (value is None or str(value).lower() in _NONE)
        present = next(member for member in inner if member is not types.NoneType)
        return None if absent else read_value(present, value)
    if kind in (tuple, list):
        return kind(_items(inner, value))
    if value is None or isinstance(value, Mapping | list | tuple):
        found = "nothing" if value is None else "a list or a section"
        raise ValueError(f"{found} is given, but {_expected(hint)} is expected")
    try:
        return _scalar(hint, str(value))
    except (KeyError, ValueError):
        raise ValueError(f"{str(value)!r} is not {_expected(hint)}") from None


def _items(inner: tuple[Any, ...], value: Any) -> list[Any]:
    """The converted items of a list, or of a text such as `1,2,3` or `[1, 2, 3]`."""
    if isinstance(value, str):
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError(f"{str(value)!r} is not a list such as 1,2,3")
    if len(inner) == 1 or inner[-1] is Ellipsis:
        inner = (inner[0],) * len(value)
    if len(value) != len(inner):
        raise ValueError(f"{len(value)} values are given, but {len(inner)} are expected")
    return [read_value(hint, item) for hint, item in zip(inner, value, strict=True)]


def _scalar(hint: Any, text: str) -> Any:
    if get_origin(hint) is Literal:
        return {str(option): option for option in get_args(hint)}[text]
    if hint is bool:
        return _BOOLEANS[text.lower()]
    if hint is int:
        return _whole(text)
    if hint is float:
        return _finite(text)
    return hint(text)


def _whole(text: str) -> int:
    """A whole number, also in the form `1e5`."""
    try:
        return int(text)
    except ValueError:
        if not (number := _finite(text)).is_integer():
            raise
        return int(number)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError
    return number


def _expected(hint: Any) -> str:
    """The name of a type in error messages."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    return _TYPE_NAMES.get(hint, "text")


def _value(hint: Any, field: str, text: Any) -> Any:
    try:
        return read_value(hint, text)
    except ValueError as error:
        raise UnmaskError(f"{field}: {error}") from None


def read_option(one: Option, value: Any) -> Any:
    """The checked value of an option, converted to its type unless that is text."""
    converted = one.number or ((one.choices or one.many) and one.kind is not str)
    found = _value(one.hint, one.name, value) if converted else value
    one.check(found)
    return found
