"""A small model of pairs, trained once."""

import json

import pytest
from tiny_models import SHAPE, TEXTS, TINY

import unmask
from unmask.config.run_config import resolve


@pytest.fixture(scope="session")
def pairs(tmp_path_factory) -> unmask.Model:
    """A model trained on the end of a sentence given its start."""
    folder = tmp_path_factory.mktemp("pairs")
    halves = (text.partition(" sat ") for text in TEXTS)
    lines = (json.dumps({"who": who, "where": where}) for who, _, where in halves)
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    choices = {
        **dict(TINY),
        "data.length": "40",
        "data.packing": "pad",
        "data.train": str(folder / "pairs.jsonl"),
        "data.cache": str(folder / "cache"),
        "data.source_field": "who",
        "data.target_field": "where",
        "data.tokenizer.kind": "characters",
        **{f"backbone.{name}": value for name, value in SHAPE},
    }
    del choices["data.separator"]
    config = resolve({}, list(choices.items()))
    return unmask.train(config, folder / "run", say=lambda line: None)
