"""Constraints of a JSON schema: every allowed text matches it, and an unsupported schema is refused."""

import json

import jsonschema_rs
import numpy as np
import pytest

from unmask.constraints.budget import LIMITS, Budget
from unmask.constraints.byte_automaton import ByteMachine
from unmask.constraints.json_schema import json_schema
from unmask.errors import UnmaskError

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 3},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 1},
            },
            "required": ["name"],
        }
    },
    "$ref": "#/$defs/node",
}
PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {
        "nick": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "age": {"type": "integer"},
        "role": {"enum": ["boss", 'a "b"', None, 3]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["age", "tags"],
    "additionalProperties": False,
}
SCHEMAS = {
    "person": PERSON,
    "tree": TREE,
    "map": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
    "any object": {"type": "object"},
    "all optional": {"properties": {"a": {"type": "null"}, "b": {"const": "é"}}, "type": "object"},
    "unnamed": {"type": "object", "required": ["x"], "additionalProperties": {"type": "number"}},
    "text": {"type": "string", "minLength": 2, "maxLength": 4},
}


def some_texts(machine: ByteMachine, count: int) -> list[str]:
    """Texts that the automaton accepts, by random steps from which an accepting state can be reached."""
    steps = np.full(len(machine.table), 10**6)  # to an accepting state
    steps[machine.accepting] = 0
    for _ in steps:
        steps = np.minimum(steps, 1 + steps[machine.table].min(1))
    draw, texts = np.random.default_rng(0), []
    for _ in range(count):
        state, text = 0, b""
        while not machine.accepting[state] or (len(text) < 40 and draw.random() < 0.5):
            good = np.flatnonzero(steps[machine.table[state]] < 10**6)
            if len(text) > 40:
                good = good[steps[machine.table[state][good]] < steps[state]]
            if not len(good):
                break
            byte = int(draw.choice(good))
            state, text = machine.table[state, byte], text + bytes([byte])
        texts.append(text.decode())
    return texts


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_text_is_json_that_matches_the_schema(name):
    texts = some_texts(json_schema(SCHEMAS[name]), 60)
    for text in texts:
        jsonschema_rs.validate(SCHEMAS[name], json.loads(text))
    assert len(set(texts)) > 3


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            PERSON,
            ['{"age": 1,"tags": [true]}', '{"nick":null, "age":-3, "role":3, "tags":[true,false]}'],
            ['{"age": 1}', '{"age": 01, "tags": [true]}', '{"age": 1, "tags": []}', "{}"],
        ),
        (TREE, ['{"name":"a"}', '{"name":"a", "children":[{"name":""}]}'], ['{"name":"abcd"}']),
        ({"type": "object"}, ["{}", '{"a": [1.5e-3, {"b": null}]}'], ["[]", "{a: 1}"]),
        ({"type": "array", "items": False}, ["[]"], ["[1]"]),
        ({"oneOf": [{"const": "."}, {"type": "number"}]}, ['"."', "0.5"], ['"x"', "00", "."]),
    ],
)
def test_a_schema_allows_its_own_texts(schema, good, bad):
    machine = json_schema(schema)
    assert all(machine.accepts(text.encode()) for text in good)
    assert not any(machine.accepts(text.encode()) for text in bad)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "integer", "minimum": 3}, "'minimum'"),
        ({"type": "string", "pattern": "a"}, "'pattern'"),
        ({"type": "string", "format": "email"}, "'format'"),
        ({"anyOf": [{"type": "null"}], "properties": {}}, "'properties'"),
        ({"type": "text"}, "type 'text'"),
        ({"$ref": "#/$defs/no"}, "has no '#/$defs/no'"),
        ({"$ref": "http://example.org/a"}, "has no 'http"),
        ({"enum": []}, "enum"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "no JSON text"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "no JSON text"),
        ({"items": [1]}, "a list in place of a schema"),
        ({"type": "string", "maxLength": 10**9}, "maxLength"),
        ({"type": "object", "maxLength": -1}, "maxLength"),
        ({"type": "string", "required": "a"}, "required"),
        ({"type": {}}, "type {}"),
        ({"type": []}, "type"),
    ],
)
def test_unsupported_keywords_of_a_schema_are_named(schema, message):
    with pytest.raises(UnmaskError) as caught:
        json_schema(schema)
    assert message in str(caught.value)


def doubling(levels: int, make) -> dict:
    """Definitions of which each names the next one twice."""
    parts = {f"a{i}": make({"$ref": f"#/$defs/a{i + 1}"}) for i in range(levels)}
    return {"$defs": {**parts, f"a{levels}": {"type": "null"}}, "$ref": "#/$defs/a0"}


def nested(levels: int) -> dict:
    schema: dict = {"const": 1}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def test_shared_definitions_are_compiled_once():
    costs = []
    for levels in (24, 48):
        budget = Budget()
        schema = doubling(levels, lambda part: {"anyOf": [part, part]})
        assert json_schema(schema, budget).accepts(b"null")
        costs.append(budget.counts["steps"])
    assert costs[1] < 4 * costs[0]  # references are counted for each pair


def test_alternatives_that_end_alike_share_their_states():
    def either(part: dict) -> dict:
        return {"anyOf": [{"type": "array", "items": part, "minItems": 1, "maxItems": 1}, part]}

    budget = Budget()
    machine = json_schema(doubling(8, either), budget)
    assert machine.accepts(b"[[null]]") and not machine.accepts(b"[" * 9 + b"null" + b"]" * 9)
    assert budget.counts["NFA states"] < 600


def test_members_are_built_in_linear_size():
    counts = []
    for number in (50, 100):
        budget = Budget()
        names = {f"p{i:03}": {"type": "boolean"} for i in range(number)}
        json_schema({"properties": names, "type": "object"}, budget)
        counts.append(budget.counts)
    assert counts[1]["NFA states"] < 2.1 * counts[0]["NFA states"]
    assert counts[1]["states"] < 2.1 * counts[0]["states"]


def test_one_of_mutually_recursive_definitions_has_the_levels_of_all():
    names = [f"a{i}" for i in range(12)]
    refs = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    with pytest.raises(UnmaskError, match=f"needs more than {LIMITS['steps']} steps"):
        json_schema({"$defs": {name: {"properties": refs} for name in names}, "$ref": "#/$defs/a0"})


@pytest.mark.parametrize(
    ("schema", "limit"),
    [
        (doubling(20, lambda part: {"properties": {"x": part, "y": part}}), "NFA states"),
        ({"properties": {f"p{i}": {"type": "string"} for i in range(2000)}}, "NFA states"),
        ({"enum": ["x" * LIMITS["characters"]]}, "characters"),
    ],
)
def test_large_schemas_are_refused_in_one_line(schema, limit):
    with pytest.raises(
        UnmaskError, match=f"the JSON schema needs more than {LIMITS[limit]} {limit}"
    ):
        json_schema(schema)


@pytest.mark.parametrize("schema", [nested(300), nested(150), {"const": nested(300)}])
def test_deep_schemas_are_refused_in_one_line(schema):
    with pytest.raises(UnmaskError, match="nested levels: make it flatter"):
        json_schema(schema)


def test_the_budget_multiplies_the_limits():
    schema = {"properties": {f"p{i:04}": {"type": "integer"} for i in range(300)}}
    with pytest.raises(UnmaskError, match=r"more than 4096 states.* --constraint-budget, here 1"):
        json_schema(schema)
    assert json_schema(schema, Budget(4.0)).accepts(b'{"p0007": 1, "p0299": -5}')
