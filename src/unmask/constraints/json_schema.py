"""JSON schemas as regular expressions. Every keyword is obeyed, ignored as a note, or refused."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from unmask.errors import UnmaskError

DEPTH = 3  # nested objects and arrays of a value without a schema, and of a recursive reference
MOST_ITEMS = 1024  # of minItems, maxItems, minLength and maxLength
_STRING_CHARACTER = r'(?:[^"\\\x00-\x1f\x7f]|\\["\\/bfnrt])'
# of 15 digits at most, and an exponent of two: a float holds them
_INTEGER = r"-?(?:0|[1-9][0-9]{0,14})"
_SCALARS = {
    "string": f'"{_STRING_CHARACTER}*"',
    "integer": _INTEGER,
    "number": rf"{_INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{{1,2}})?",
    "boolean": "(?:true|false)",
    "null": "null",
}
_TYPES = (*_SCALARS, "object", "array")
_NOTES = {
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$id", "$comment", "$defs", "definitions"),
}
_KEYWORDS = {  # by type; of other types they are ignored, as the specification demands
    "string": ("minLength", "maxLength"),
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
}


def schema_regex(schema: Mapping[str, Any]) -> str:
    """A regular expression of JSON texts that match a schema.

    Properties come in the order of the schema, and no others are added. After a colon and a comma
    there may be a space. A value without a schema, and a recursive reference, has at most DEPTH
    levels. So the expression can be narrower than the schema, but never wider.

    Example:
        >>> schema_regex({"enum": ["red", 1]})
        '(?:"red"|1)'
    """
    found = _Compiler(schema).value(schema, {})
    if found is None:
        raise UnmaskError("no JSON text of bounded depth matches the schema: change it")
    return found


class _Compiler:
    """Compiles the parts of one schema. The result None means that no text matches."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def value(self, schema: Any, seen: Mapping[str, int]) -> str | None:
        """The expression of a part. `seen` counts the references that lead to it."""
        if schema is True:
            return any_value(DEPTH)
        if schema is False:
            return None
        if not isinstance(schema, Mapping):
            raise UnmaskError(f"the JSON schema has a {type(schema).__name__} in place of a schema")
        for name in ("$ref", "anyOf", "oneOf", "allOf", "const", "enum"):
            if name in schema:
                self._check_only(schema, name, "type")
                return self._combined(name, schema[name], seen)
        self._check_only(schema, "type", *(name for names in _KEYWORDS.values() for name in names))
        types = schema.get("type", [kind for kind in _TYPES if self._speaks_of(schema, kind)])
        kinds = [types] if isinstance(types, str) else types or _TYPES
        if not isinstance(kinds, Sequence) or not all(kind in _TYPES for kind in kinds):
            raise UnmaskError(
                f"the JSON schema has type {types!r}: give one of {', '.join(_TYPES)}"
            )
        return _either(self._typed(kind, schema, seen) for kind in kinds)

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

    def _combined(self, name: str, content: Any, seen: Mapping[str, int]) -> str | None:
        if name == "$ref":
            return self._reference(content, seen)
        if name == "const":
            return re.escape(json.dumps(content, ensure_ascii=False))
        if not isinstance(content, list) or not content:
            raise UnmaskError(f"{name} of the JSON schema must be a list that is not empty")
        if name == "enum":
            return _either(re.escape(json.dumps(one, ensure_ascii=False)) for one in content)
        if name == "allOf" and len(content) > 1:
            raise UnmaskError("allOf of the JSON schema has several schemas: merge them into one")
        return _either(self.value(one, seen) for one in content)

    def _reference(self, name: Any, seen: Mapping[str, int]) -> str | None:
        """The expression of a part that the schema names, such as #/$defs/item."""
        depth = seen.get(name, 0) if isinstance(name, str) else 0
        if depth >= DEPTH:
            return None
        part: Any = self._root
        for key in str(name).split("/")[1:] if str(name).startswith("#") else [""]:
            key = key.replace("~1", "/").replace("~0", "~")
            if not isinstance(part, Mapping) or key not in part:
                raise UnmaskError(f"the JSON schema has no {name!r}: add it to $defs")
            part = part[key]
        return self.value(part, {**seen, name: depth + 1})

    def _typed(self, kind: str, schema: Mapping[str, Any], seen: Mapping[str, int]) -> str | None:
        if kind == "object":
            return self._object(schema, seen)
        if kind == "array":
            items = schema.get("items", True)
            item = any_value(DEPTH - 1) if items is True else self.value(items, seen)
            least, most = _range(schema, "minItems", "maxItems")
            return _listed("[", "]", item, least, most)
        if kind == "string":
            least, most = _range(schema, "minLength", "maxLength")
            if least or most is not None:
                return f'"{_STRING_CHARACTER}{{{least},{"" if most is None else most}}}"'
        return _SCALARS[kind]

    def _object(self, schema: Mapping[str, Any], seen: Mapping[str, int]) -> str | None:
        required, others = schema.get("required", []), schema.get("additionalProperties", True)
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise UnmaskError("required of the JSON schema must be a list of names")
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise UnmaskError("properties of the JSON schema must be an object of schemas")
        if not properties and not required:
            inner = any_value(DEPTH - 1) if others is True else self.value(others, seen)
            member = None if inner is None else f"{_SCALARS['string']}: ?{inner}"
            return _listed("{", "}", member, 0, None)
        members = []  # expression of each property, and True if it is required
        for name in dict.fromkeys((*properties, *required)):
            inner = self.value(properties.get(name, others), seen)
            if inner is not None:
                key = re.escape(json.dumps(name, ensure_ascii=False))
                members.append((f"{key}: ?{inner}", name in required))
            elif name in required:
                return None
        return rf"\{{{_members(members)}\}}"


def any_value(depth: int) -> str:
    """The expression of any JSON value with at most `depth` nested objects and arrays."""
    if depth == 0:
        return _either(_SCALARS.values()) or ""
    inner = any_value(depth - 1)
    nested = (
        _listed("[", "]", inner, 0, None),
        _listed("{", "}", f"{_SCALARS['string']}: ?{inner}", 0, None),
    )
    return _either((*_SCALARS.values(), *nested)) or ""


def _members(members: Sequence[tuple[str, bool]]) -> str:
    """The expression of properties with commas between them; only required ones must occur."""
    rest = [""]  # the properties from each one on, after another property
    for member, required in reversed(members):
        one = f", ?{member}"
        rest.insert(0, (one if required else f"(?:{one})?") + rest[0])
    choices = []
    for number, (member, required) in enumerate(members):  # the first property that occurs
        choices.append(member + rest[number + 1])
        if required:
            return _either(choices) or ""
    return f"{_either(choices)}?" if choices else ""


def _listed(
    opening: str, closing: str, item: str | None, least: int, most: int | None
) -> str | None:
    """The expression of `least` to `most` items with commas between them."""
    opening, closing = re.escape(opening), re.escape(closing)
    if item is None or most == 0:
        return f"{opening}{closing}" if least == 0 else None
    more = f"(?:, ?{item}){{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
    items = f"{item}{more}"
    return f"{opening}(?:{items}){'' if least else '?'}{closing}"


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


def _either(choices: Any) -> str | None:
    """The expression of any of the choices; those that are None are left out."""
    kept = [choice for choice in choices if choice is not None]
    return f"(?:{'|'.join(kept)})" if kept else None
