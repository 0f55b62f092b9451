"""JSON schemas as expressions. Every keyword is obeyed, ignored as a note, or refused."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from unmask.constraints.budget import Budget, check_levels
from unmask.constraints.byte_automaton import ByteMachine
from unmask.constraints.expression import (
    EMPTY,
    Chain,
    Expression,
    Members,
    Repeat,
    either,
    text,
)
from unmask.constraints.nondeterministic import automaton
from unmask.constraints.regex import expression
from unmask.errors import UnmaskError

DEPTH = 3  # nested objects and arrays of a value without a schema, and of a recursive reference
MOST_NESTED = 200  # levels of a schema as JSON
MOST_VALUES = 100  # schemas inside schemas, references included
MOST_ITEMS = 1024  # of minItems, maxItems, minLength and maxLength
_SUBJECT = "the JSON schema"
_STRING_CHARACTER = r'(?:[^"\\\x00-\x1f\x7f]|\\["\\/bfnrt])'
# of 15 digits at most, and an exponent of two: a float holds them
_INTEGER = r"-?(?:0|[1-9][0-9]{0,14})"
_PATTERNS = {
    "string": f'"{_STRING_CHARACTER}*"',
    "integer": _INTEGER,
    "number": rf"{_INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{{1,2}})?",
    "boolean": "(?:true|false)",
    "null": "null",
}
_TYPES = (*_PATTERNS, "object", "array")
_NOTES = {
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$id", "$comment", "$defs", "definitions"),
}
_KEYWORDS = {  # by type; of other types they are ignored, as the specification demands
    "string": ("minLength", "maxLength"),
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
}


def json_schema(schema: Mapping[str, Any], budget: Budget | None = None) -> ByteMachine:
    """The automaton of JSON texts that match a schema.

    Properties come in the order of the schema, and no others are added. After a colon and a comma
    there may be a space. A value without a schema, and a recursive reference, has at most DEPTH
    levels. So the automaton can be narrower than the schema, but never wider.

    Args:
        schema: The schema.
        budget: Limits of its size; by default those of `LIMITS`.

    Returns:
        The smallest deterministic automaton.

    Example:
        >>> json_schema({"enum": ["red", 1]}).accepts(b'"red"')
        True
    """
    budget = budget or Budget()
    measure(schema, budget)
    found = _Compiler(schema, budget).value(schema, {}, 0)
    if found is None:
        raise UnmaskError("no JSON text of bounded depth matches the schema: change it")
    return automaton(found, budget, _SUBJECT)


def measure(schema: Any, budget: Budget) -> None:
    """Raises an error for a schema that is too large or too deep, before any recursive function sees it."""
    parts = [(schema, 0)]
    while parts:
        part, levels = parts.pop()
        check_levels(levels, MOST_NESTED)
        size = len(part) if isinstance(part, str | Mapping | list) else 1
        if isinstance(part, Mapping):
            size += sum(len(name) if isinstance(name, str) else 1 for name in part)
        inner = part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()  # fmt: skip
        parts.extend((one, levels + 1) for one in inner)
        budget.charge("characters", size, _SUBJECT)


class _Compiler:
    """Compiles the parts of one schema. The result None means that no text matches."""

    def __init__(self, root: Mapping[str, Any], budget: Budget) -> None:
        self._root, self._budget = root, budget
        self._definitions: dict[tuple[str, tuple[tuple[str, int], ...]], Expression | None] = {}
        self._leads: dict[str, set[str]] = {}  # from a reference to all that it leads to

    def value(self, schema: Any, seen: Mapping[str, int], depth: int) -> Expression | None:
        """The expression of a part. `seen` counts the references that lead to it."""
        self._budget.charge("steps", 20, _SUBJECT)
        check_levels(depth, MOST_VALUES)
        if schema is True:
            return any_value(DEPTH)
        if schema is False:
            return None
        if not isinstance(schema, Mapping):
            raise UnmaskError(f"the JSON schema has a {type(schema).__name__} in place of a schema")
        for name in ("$ref", "anyOf", "oneOf", "allOf", "const", "enum"):
            if name in schema:
                self._check_only(schema, name, "type")
                return self._combined(name, schema[name], seen, depth + 1)
        self._check_only(schema, "type", *(name for names in _KEYWORDS.values() for name in names))
        _check_values(schema)
        spoken_of = [kind for kind in _TYPES if self._speaks_of(schema, kind)]
        types = schema.get("type", spoken_of or list(_TYPES))
        kinds = [types] if isinstance(types, str) else types
        if not isinstance(kinds, list) or not kinds or not all(kind in _TYPES for kind in kinds):
            raise UnmaskError(
                f"the JSON schema has type {types!r}: give one of {', '.join(_TYPES)}"
            )
        return _either([self._typed(one, schema, seen, depth + 1) for one in dict.fromkeys(kinds)])

    def _speaks_of(self, schema: Mapping[str, Any], kind: str) -> bool:
        """True if a keyword of the schema is for values of this type."""
        return any(name in schema for name in _KEYWORDS.get(kind, ()))

    def _check_only(self, schema: Mapping[str, Any], *names: str) -> None:
        """Raises an error for a keyword that is neither a note nor in `names`."""
        for name in schema:
            if name not in _NOTES and name not in names:
                raise UnmaskError(
                    f"the JSON schema has {name!r} in {sorted(schema)}, which is not supported: leave it out"
                )

    def _combined(
        self, name: str, content: Any, seen: Mapping[str, int], depth: int
    ) -> Expression | None:
        if name == "$ref":
            return self._reference(content, seen, depth)
        if name == "const":
            return text(json.dumps(content, ensure_ascii=False))
        if not isinstance(content, list) or not content:
            raise UnmaskError(f"{name} of the JSON schema must be a list that is not empty")
        if name == "enum":
            texts = dict.fromkeys(json.dumps(one, ensure_ascii=False) for one in content)
            return either(map(text, texts))
        if name == "allOf" and len(content) > 1:
            raise UnmaskError("allOf of the JSON schema has several schemas: merge them into one")
        return _either([self.value(one, seen, depth) for one in content])

    def _reference(self, name: Any, seen: Mapping[str, int], depth: int) -> Expression | None:
        """The expression of a part that the schema names, such as #/$defs/item, made once."""
        times = seen.get(name, 0) if isinstance(name, str) else 0
        if times >= DEPTH:
            return None
        part = self._part(name)
        # only references that can come again below this one change what it stands for
        self._budget.charge("steps", 10 + 4 * len(seen), _SUBJECT)
        again = {one: count for one, count in seen.items() if one in self._below(name)}
        key = name, tuple(sorted(again.items()))
        if key not in self._definitions:
            self._definitions[key] = self.value(part, {**again, name: times + 1}, depth)
        return self._definitions[key]

    def _part(self, name: Any) -> Any:
        """The part of the schema that a reference names."""
        part: Any = self._root
        for key in str(name).split("/")[1:] if str(name).startswith("#") else [""]:
            key = key.replace("~1", "/").replace("~0", "~")
            if not isinstance(part, Mapping) or key not in part:
                raise UnmaskError(f"the JSON schema has no {name!r}: add it to $defs")
            part = part[key]
        return part

    def _below(self, name: str) -> set[str]:
        """The references that a reference leads to, directly and through others."""
        found: set[str] = set()
        names = [name]
        while names:
            fresh = self._direct(names.pop()) - found
            self._budget.charge("steps", 1 + len(fresh), _SUBJECT)
            found |= fresh
            names += fresh
        return found

    def _direct(self, name: str) -> set[str]:
        """The references in the part that a reference names."""
        if name not in self._leads:
            self._leads[name] = set()
            parts = [self._part(name)]
            while parts:
                part = parts.pop()
                self._budget.charge("steps", 1, _SUBJECT)
                if isinstance(part, Mapping):
                    other = part.get("$ref")
                    if isinstance(other, str) and other.startswith("#"):
                        self._leads[name].add(other)
                    parts += part.values()
                elif isinstance(part, list):
                    parts += part
        return self._leads[name]

    def _typed(
        self, kind: str, schema: Mapping[str, Any], seen: Mapping[str, int], depth: int
    ) -> Expression | None:
        if kind == "object":
            return self._object(schema, seen, depth)
        if kind == "array":
            items = schema.get("items", True)
            item = any_value(DEPTH - 1) if items is True else self.value(items, seen, depth)
            least, most = _range(schema, "minItems", "maxItems")
            return _listed("[", "]", item, least, most)
        if kind == "string":
            least, most = _range(schema, "minLength", "maxLength")
            if least or most is not None:
                return Chain((text('"'), Repeat(_fixed(_STRING_CHARACTER), least, most), text('"')))
        return _fixed(_PATTERNS[kind])

    def _object(
        self, schema: Mapping[str, Any], seen: Mapping[str, int], depth: int
    ) -> Expression | None:
        required, others = schema.get("required", []), schema.get("additionalProperties", True)
        properties = schema.get("properties", {})
        if not properties and not required:
            inner = any_value(DEPTH - 1) if others is True else self.value(others, seen, depth)
            member = None if inner is None else _named(_fixed(_PATTERNS["string"]), inner)
            return _listed("{", "}", member, 0, None)
        members: list[tuple[Expression, bool]] = []  # each property, and True if it is required
        needed = set(required)
        for name in dict.fromkeys((*properties, *required)):
            found = self.value(properties.get(name, others), seen, depth)
            if found is not None:
                key = text(json.dumps(name, ensure_ascii=False))
                members.append((_named(key, found), name in needed))
            elif name in needed:
                return None
        return Chain((text("{"), Members(tuple(members), _fixed(", ?")), text("}")))


@cache
def any_value(depth: int) -> Expression:
    """Any JSON value with at most `depth` nested objects and arrays."""
    scalars = [_fixed(pattern) for pattern in _PATTERNS.values()]
    if depth == 0:
        return either(scalars)
    inner = any_value(depth - 1)
    array = _listed("[", "]", inner, 0, None) or EMPTY
    mapping = _listed("{", "}", _named(_fixed(_PATTERNS["string"]), inner), 0, None) or EMPTY
    return either([*scalars, array, mapping])


@cache
def _fixed(pattern: str) -> Expression:
    """The expression of one of the patterns above."""
    return expression(pattern, Budget())


def _named(key: Expression, value: Expression) -> Expression:
    return Chain((key, _fixed(": ?"), value))


def _listed(
    opening: str, closing: str, item: Expression | None, least: int, most: int | None
) -> Expression | None:
    """`least` to `most` items with commas between them."""
    if item is None or most == 0:
        return text(opening + closing) if least == 0 else None
    further = Chain((_fixed(", ?"), item))
    more = Repeat(further, max(least - 1, 0), None if most is None else most - 1)
    items = Repeat(Chain((item, more)), 1 if least else 0, 1)
    return Chain((text(opening), items, text(closing)))


def _check_values(schema: Mapping[str, Any]) -> None:
    """Raises an error for a malformed value of a keyword, also of one that the schema's types ignore."""
    required, properties = schema.get("required", []), schema.get("properties", {})
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise UnmaskError("required of the JSON schema must be a list of names")
    if not isinstance(properties, Mapping):
        raise UnmaskError("properties of the JSON schema must be an object of schemas")
    _range(schema, "minItems", "maxItems")
    _range(schema, "minLength", "maxLength")


def _range(schema: Mapping[str, Any], lower: str, upper: str) -> tuple[int, int | None]:
    least, most = schema.get(lower, 0), schema.get(upper)
    for name, value in ((lower, least), (upper, most)):
        if value is not None and not (type(value) is int and 0 <= value <= MOST_ITEMS):
            raise UnmaskError(
                f"{name} of the JSON schema must be an integer from 0 to {MOST_ITEMS}"
            )
    if most is not None and most < least:
        raise UnmaskError(f"{lower} of the JSON schema is {least} and {upper} is {most}: swap them")
    return least, most


def _either(choices: Iterable[Expression | None]) -> Expression | None:
    """Any of the choices; those that are None are left out."""
    kept = [choice for choice in choices if choice is not None]
    return either(kept) if kept else None
