"""Signatures and docstrings of functions that take the options of sampling."""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from unmask.generation.sampling_params import SamplingParams, attachment_options
from unmask.options import Option, options_of

F = TypeVar("F", bound=Callable[..., Any])
# the line of a docstring that the options replace
MARKER = "options: the fields of `unmask.SamplingParams`."
_WIDTH = 96
_HUGE = 2**20 - 1


def with_sampling_options(function: F) -> F:
    """Shows every option of `SamplingParams` in the signature and the docstring of a function.

    The function declares `**options: Unpack[SamplingOptions]` for type checkers. `help()`,
    notebooks and `inspect.signature` show the options by name, with type, default, range and help.

    Args:
        function: A function whose docstring has the line `MARKER` under Args.

    Returns:
        The same function.

    Example:
        >>> from unmask.model import Model
        >>> "temperature" in inspect.signature(Model.generate).parameters
        True
    """
    options = shown_options()
    own = inspect.signature(function)
    named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    more = [
        inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.hint
        )
        for one in options
    ]
    vars(function)["__signature__"] = own.replace(parameters=[*named, *more])
    text = function.__doc__ or ""
    before, marker, after = text.partition(MARKER)
    assert marker, f"the docstring of {function.__qualname__} lacks the line {MARKER!r}"
    indent = " " * (len(before) - len(before.rstrip(" ")))
    lines = f"\n{indent}".join(line for one in options for line in lines_of(one))
    function.__doc__ = before + lines + after
    return function


def shown_options() -> list[Option]:
    """The options that a signature names: those of `SamplingParams` and of attachments."""
    groups = ("attachments", "processors")
    own = [one for one in options_of(SamplingParams) if one.name not in groups]
    return own + attachment_options()


def lines_of(one: Option) -> list[str]:
    """An option as lines of a docstring; a limit that only guards memory is left out."""
    one = replace(one, le=None) if one.le is not None and one.le >= _HUGE else one
    allowed = (
        f" Must {'lie' if one.range.startswith('in') else 'be'} {one.range}." if one.range else ""
    )
    if one.choices:
        allowed = f" One of {', '.join(map(str, one.choices))}."
    return textwrap.wrap(f"{one.name}: {one.help}.{allowed}", _WIDTH, subsequent_indent="    ")
