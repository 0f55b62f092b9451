"""Small models of text and of pairs, trained once."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))  # for tiny_models

from tiny_models import SHAPE, TEXTS, TINY, train_tiny

import unmask
from unmask.config import resolve


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    return train_tiny(tmp_path_factory.mktemp("mdlm"), "bpe", "mdlm", "dit")


@pytest.fixture(scope="session")
def model(run) -> unmask.Model:
    return unmask.load(run, "cpu")


@pytest.fixture(scope="session")
def left_to_right(tmp_path_factory) -> unmask.Model:
    folder = tmp_path_factory.mktemp("autoregressive")
    return unmask.load(train_tiny(folder, "characters", "autoregressive", "causal"), "cpu")


@pytest.fixture(params=["mdlm", "autoregressive"])
def either(request, model, left_to_right) -> unmask.Model:
    return model if request.param == "mdlm" else left_to_right


@pytest.fixture(scope="session")
def pairs(tmp_path_factory) -> unmask.Model:
    """A model that was asked for the end of a sentence given its start."""
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
