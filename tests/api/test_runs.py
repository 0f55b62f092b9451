"""What training measures on the way: parts of a text, and targets that are far too unlikely."""

import json

import pytest

import unmask
from unmask.api.runs import FirstRows
from unmask.config import resolve
from unmask.data import ByteTokenizer, DataConfig, rows_from


@pytest.mark.parametrize("packing", ["pad", "split"])
def test_the_first_rows_have_the_text_of_their_tokens(packing):
    """Half of the rows hold nearly all of the text; each has BOS and EOS beside its bytes."""
    rows = rows_from(["a" * 98, "b" * 2], ByteTokenizer(), DataConfig(packing=packing, length=100))
    first = FirstRows(rows, 1)
    assert first.tokens == 100
    assert first.bytes == first.characters == round(100 * 100 / 104)
    assert first.text_estimated
    for count in (0, 2, 9):
        every = FirstRows(rows, count)
        assert (every.bytes, every.tokens, every.text_estimated) == (100, 104, False)


def test_a_validation_that_costs_more_than_floating_point_can_tell_is_logged(tmp_path):
    """Short targets in long rows: the filling alone costs an untrained model a thousand nats."""
    pairs = tmp_path / "pairs.jsonl"
    lines = [{"de": "x", "en": letter} for letter in "abc"] + [{"de": "x" * 600, "en": "y"}]
    pairs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {
        "data.train": pairs, "data.valid": pairs, "data.cache": tmp_path / "cache",
        "data.source_field": "de", "data.target_field": "en", "data.packing": "pad",
        "data.length": 600, "data.tokenizer.kind": "bytes", "backbone.width": 16,
        "backbone.depth": 1, "backbone.heads": 2, "training.steps": 1, "training.batch": 2,
        "training.warmup": 0, "training.sample_every": 0, "training.validation_rows": 2,
        "training.device": "cpu",
    }  # fmt: skip
    config = resolve({}, [(name, str(value)) for name, value in settings.items()])
    unmask.train(config, tmp_path / "run", say=lambda line: None)
    records = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    (validation,) = [each["validation"] for each in records if "validation" in each]
    assert validation["nats"] > 710
    assert validation["perplexity"] is None
    assert (validation["text_estimated"], validation["left_out"]) == (True, 1)
