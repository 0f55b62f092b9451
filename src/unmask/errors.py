"""Errors and warnings that the command line prints as one line."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_LONGEST = 2000  # characters of a message


class UnmaskError(Exception):
    """An error that a user can correct. Its message names the mistake and the remedy in one line.

    The command line prints it and exits with status 2. A message may quote a file, so control
    characters are escaped: a file cannot send commands to the terminal.
    """

    def __init__(self, message: str) -> None:
        shown = "".join(c if c.isprintable() else _escaped(c) for c in message[: _LONGEST + 1])
        super().__init__(shown if len(message) <= _LONGEST else f"{shown[:_LONGEST]}…")


class UnmaskWarning(UserWarning):
    """A warning about a slow setting or a missing part of the system. The command continues."""


def refuse(*rules: tuple[object, str]) -> None:
    """Raises an error with the message of the first rule whose condition holds.

    Args:
        rules: Pairs of a condition and a message.

    Example:
        >>> refuse((1 > 2, "unreachable"), (2 > 1, "two is more than one"))
        Traceback (most recent call last):
        unmask.errors.UnmaskError: two is more than one
    """
    for holds, message in rules:
        if holds:
            raise UnmaskError(message)


def misnamed(hint: Callable[[str, Any], str | None]) -> Callable[[F], F]:
    """A decorator that explains arguments which a function does not have.

    Args:
        hint: (name, value) -> the right spelling of an unknown argument, or None without one.

    Returns:
        The decorator. An explained argument is an `UnmaskError` in place of a TypeError.

    Example:
        >>> @misnamed(lambda name, value: "give precision" if name == "dtype" else None)
        ... def load(path, precision="fp32"): ...
        >>> load("stories", dtype="bf16")
        Traceback (most recent call last):
        unmask.errors.UnmaskError: load has no argument 'dtype': give precision
    """

    def decorate(function: F) -> F:
        known = inspect.signature(function).parameters

        @functools.wraps(function)
        def explained(*args: Any, **options: Any) -> Any:
            for name, value in options.items():
                if name not in known and (right := hint(name, value)):
                    raise UnmaskError(f"{function.__name__} has no argument {name!r}: {right}")
            return function(*args, **options)

        return cast(F, explained)

    return decorate


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def unknown(kind: str, name: str, known: Iterable[str], cutoff: float = 0.5) -> UnmaskError:
    """An error for an unknown name, with the most similar known name or all known names."""
    known = sorted(known)
    near = difflib.get_close_matches(name[:100], known, n=1, cutoff=cutoff)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return UnmaskError(f"unknown {kind} {name!r}; {hint}")
