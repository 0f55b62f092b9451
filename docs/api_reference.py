"""Docstrings as the Python reference shows them, read from the source without imports of torch."""

import re
from typing import Any

import griffe

from unmask.generation.sampling_params import SamplingParams
from unmask.generation.signature import MARKER, lines_of, shown_options
from unmask.options import options_of


class Reference(griffe.Extension):
    """Examples become code, options of sampling are listed, and `option(…)` shows its default."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        text = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.M)
        if obj.path.endswith(f".{SamplingParams.__name__}"):
            fields = "\n".join(
                f"    {line}" for one in options_of(SamplingParams) for line in lines_of(one)
            )
            text = f"{text}\n\nArgs:\n{fields}"
        before, marker, after = text.partition(MARKER)
        if marker and isinstance(obj, griffe.Function):
            indent = " " * (len(before) - len(before.rstrip(" ")))
            options = shown_options()
            lines = [line for one in options for line in lines_of(one)]
            text = before + f"\n{indent}".join(lines) + after
            _name_options(obj, [(one.name, repr(one.default)) for one in options])
        obj.docstring.value = text

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        for parameter in cls.parameters:  # of a dataclass, from its fields
            parameter.default = _default(parameter.default)


def _name_options(function: griffe.Function, options: list[tuple[str, str]]) -> None:
    """Replaces `**options` in a signature by the options."""
    rest = next(p for p in function.parameters if p.kind is griffe.ParameterKind.var_keyword)
    del function.parameters[rest.name]
    for name, default in options:
        kind = griffe.ParameterKind.keyword_only
        function.parameters.add(griffe.Parameter(name, kind=kind, default=default))


def _default(value: Any) -> Any:
    """The default in a call of `option`, for the signature of a dataclass."""
    if isinstance(value, griffe.ExprCall) and str(value.function) == "option":
        return next(
            (one for one in value.arguments if not isinstance(one, griffe.ExprKeyword)), None
        )
    return value
