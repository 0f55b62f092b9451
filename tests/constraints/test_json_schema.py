"""Constraints of a JSON schema: every allowed text matches it, and an unsupported schema is refused."""

import json
import re

import jsonschema_rs
import numpy as np
import pytest

from unmask.constraints.byte_automaton import ByteMachine
from unmask.constraints.json_schema import schema_regex
from unmask.constraints.regex import regex
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
    texts = some_texts(regex(schema_regex(SCHEMAS[name])), 60)
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
    expression = re.compile(schema_regex(schema))
    assert all(expression.fullmatch(text) for text in good)
    assert not any(expression.fullmatch(text) for text in bad)


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
    ],
)
def test_unsupported_keywords_of_a_schema_are_named(schema, message):
    with pytest.raises(UnmaskError) as caught:
        schema_regex(schema)
    assert message in str(caught.value)
