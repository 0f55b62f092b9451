"""Random patterns and schemas for the constraint compiler: ordinary, broken, huge, deep and shared."""

import random
import string
from typing import Any

NAMES = (
    *("id", "name", "title", "price", "tags", "address", "street", "zip", "country", "email", "phone"),
    *("created_at", "updated_at", "status", "items", "quantity", "total", "currency", "notes", "active"),
)  # fmt: skip
ATOMS = (
    *("a", "b", "[a-z]", "[A-Z]", "[0-9]", r"\d", r"(?a:\w)", r"\s", ".", "[^,]", " ", "-", "é", "cat"),
    *("dog", r"\.", "[aeiou]", "(?i:yes)", "0x"),
)  # fmt: skip
REPEATS = ("", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,4}", "*?", "{3,}")
KINDS = ("ordinary",) * 12 + ("broken",) * 3 + ("huge",) + ("deep",) * 2 + ("shared",) * 2


def pattern(draw: random.Random, kind: str) -> str:
    """A random pattern of a kind.

    Args:
        draw: The source of randomness.
        kind: One of `KINDS`.

    Returns:
        The pattern; a broken one is usually not valid.
    """
    if kind == "ordinary":
        return _expression(draw, 1)
    if kind == "broken":
        text = list(_expression(draw, 1))
        for _ in range(draw.randint(1, 3)):
            text.insert(draw.randint(0, len(text)), draw.choice("()[]{}*+?\\|^$" + chr(0xD800)))
        return "".join(text)
    if kind == "deep":
        levels = draw.randint(20, 600)
        return "(?:a" * levels + _expression(draw, 1) + ")?" * levels
    if kind == "shared":
        word = _expression(draw, 2)
        return "|".join([word * draw.randint(1, 4) for _ in range(draw.randint(2, 30))])
    make = draw.choice((_long, _repeated, _blown_up, _sets))
    return make(draw)


def schema(draw: random.Random, kind: str) -> dict[str, Any]:
    """A random JSON schema of a kind.

    Args:
        draw: The source of randomness.
        kind: One of `KINDS`.

    Returns:
        The schema.
    """
    if kind == "ordinary":
        parts = {name: _value(draw, 2, ()) for name in draw.sample(NAMES, 2)}
        root = _object(draw, 2, tuple(parts))
        return {"title": "Record", "$defs": parts, **root}
    if kind == "broken":
        wrong: dict[str, Any] = {
            "type": draw.choice(("text", 3)),
            "$ref": draw.choice(("#/$defs/no", "http://example.org", 5)),
            "properties": draw.choice(([], "x", {"a": 3})),
            "required": draw.choice(("a", [3])),
            "enum": draw.choice(([], "a")),
            "maxLength": draw.choice((-1, 10**9, "3")),
            "pattern": "a+",
        }
        name = draw.choice(list(wrong))
        return {**_object(draw, 2, ()), name: wrong[name]}
    if kind == "deep":
        found: dict[str, Any] = {"const": draw.randint(0, 9)}
        for _ in range(draw.randint(10, 300)):
            found = draw.choice(({"type": "array", "items": found}, {"properties": {"x": found}}))
        return found
    levels = draw.randint(3, 60)
    if kind == "shared":
        parts = {f"a{i}": _doubled(draw, f"a{i + 1}") for i in range(levels)}
        return {"$defs": {**parts, f"a{levels}": {"type": "integer"}}, "$ref": "#/$defs/a0"}
    size = draw.randint(200, 2000)
    members = {f"property_{i}": draw.choice(_SCALARS)(draw) for i in range(size)}
    words = ["".join(draw.choices(string.ascii_lowercase, k=9)) for _ in range(size)]
    names = [f"n{i}" for i in range(draw.randint(3, 12))]
    refs = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    return draw.choice((
        {"type": "object", "properties": members, "required": list(members)[:: draw.randint(1, 9)]},
        {"enum": words},
        {"$defs": {name: {"properties": refs} for name in names}, "$ref": "#/$defs/n0"},
    ))  # fmt: skip


def _expression(draw: random.Random, depth: int) -> str:
    parts = []
    for _ in range(draw.randint(1, 4)):
        atom = draw.choice(ATOMS)
        if depth and draw.random() < 0.4:
            inner = [_expression(draw, depth - 1) for _ in range(draw.randint(1, 3))]
            atom = f"(?:{'|'.join(inner)})"
        repeat = draw.choice(REPEATS)
        parts.append(f"(?:{atom}){repeat}" if repeat else atom)
    return "".join(parts)


def _long(draw: random.Random) -> str:
    letters = draw.choices("ab", k=draw.randint(1000, 200_000))
    return "".join(letters)


def _repeated(draw: random.Random) -> str:
    times = draw.randint(100, 5000)
    return f"(?:{_expression(draw, 1)}){{{draw.choice((0, times))},{times}}}"


def _blown_up(draw: random.Random) -> str:
    return f"(?:{_expression(draw, 1)})*a(?:{_expression(draw, 1)}){{{draw.randint(6, 40)}}}"


def _sets(draw: random.Random) -> str:
    codes = draw.sample(range(0x100, 0x3000), draw.randint(10, 2000))
    return draw.choice(("", "(?i)")) + "".join(f"[^{chr(code)}]" for code in codes)


def _text(draw: random.Random) -> dict[str, Any]:
    bounds = {"maxLength": draw.randint(1, 20)} if draw.random() < 0.1 else {}
    return {"type": "string", **bounds}


def _words(draw: random.Random) -> dict[str, Any]:
    return {"enum": draw.sample([*NAMES, None, 3, True], draw.randint(1, 6))}


def _named(name: str) -> Any:
    return lambda draw: {"type": name}


_SCALARS = (_text, _text, _words, *map(_named, ("integer", "number", "boolean", "null")))


def _value(draw: random.Random, depth: int, parts: tuple[str, ...]) -> dict[str, Any]:
    chance = draw.random()
    if parts and chance < 0.15:
        return {"$ref": f"#/$defs/{draw.choice(parts)}"}
    if depth and chance < 0.35:
        return _object(draw, depth - 1, parts)
    if depth and chance < 0.5:
        few = {"minItems": draw.randint(0, 2), "maxItems": draw.randint(2, 6)}
        bounds = draw.choice(({}, few))
        return {"type": "array", "items": _value(draw, depth - 1, parts), **bounds}
    if depth and chance < 0.6:
        return {"anyOf": [_value(draw, depth - 1, parts), {"type": "null"}]}
    return draw.choice(_SCALARS)(draw)


def _object(draw: random.Random, depth: int, parts: tuple[str, ...]) -> dict[str, Any]:
    names = draw.sample(NAMES, draw.randint(1, 8))
    needed = draw.sample(names, draw.randint(0, len(names)))
    properties = {name: _value(draw, depth, parts) for name in names}
    return {
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": False,
    }


def _doubled(draw: random.Random, name: str) -> dict[str, Any]:
    ref = {"$ref": f"#/$defs/{name}"}
    return draw.choice(
        (
            {"anyOf": [ref, ref]},
            {"anyOf": [ref, {"type": "null"}]},
            {"anyOf": [{"type": "array", "items": ref, "maxItems": 1}, ref]},
            {"properties": {"x": ref, "y": ref}, "type": "object"},
        )
    )
