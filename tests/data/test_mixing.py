"""Several corpora mixed by weight: shares, epochs, validation and configuration."""

from collections import Counter
from dataclasses import replace

import pytest
import yaml

from unmask.config.run_config import dump_yaml, from_dict, load_recipe, resolve
from unmask.data.data_config import DataConfig, Portion
from unmask.data.load import load_data, pairs_from
from unmask.data.loader import Loader
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError


@pytest.fixture
def config(tmp_path) -> DataConfig:
    for name, count in (("a", 40), ("b", 10)):
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{name} {i:03}" for i in range(count)))
    portions = (Portion(str(tmp_path / "a.txt")), Portion(str(tmp_path / "b.txt"), 3))
    shape = {"separator": "line", "packing": "pad", "length": 8, "holdout": 0.2}
    return DataConfig(portions, tokenizer=TokenizerConfig("bytes"), **shape)


def texts(data, rows, indices) -> list[str]:
    return [data.tokenizer.decode(x) for x in rows[indices][0]]


def test_rows_are_drawn_in_proportion_to_the_weights(config):
    data = load_data(config)
    loader = Loader(data.train, 16, seed=3)
    seen = [
        text
        for step in range(64)
        for text in texts(data, data.train, loader.indices(step, range(16)))
    ]
    corpora = Counter(text[0] for text in seen)
    assert corpora == {"a": 256, "b": 768}
    # a small corpus repeats more often, evenly
    rows_b = Counter(text for text in seen if text[0] == "b")
    assert max(rows_b.values()) - min(rows_b.values()) <= 1 and len(rows_b) == 8
    x, valid = loader.batch(5, range(4, 9))
    assert (x == data.train[loader.indices(5, range(4, 9))][0]).all() and valid.sum() == 7 * 5
    assert loader.count(5, range(16)) == 16 * 7


def test_every_held_out_row_is_validated_on_and_any_first_ones_are_of_all(config):
    data = load_data(config)
    found = texts(data, data.valid, range(len(data.valid)))
    kept = texts(data, data.train, range(len(data.train)))
    assert len(set(found)) == len(found) == 11 and not set(found) & set(kept)
    assert Counter(text[0] for text in found[:5]) == {"a": 4, "b": 1}
    assert data.valid.tokens == int(data.valid.counted(range(11)).sum()) == 77
    assert (data.valid.bytes, data.train.bytes) == (55, 195)


def test_one_portion_is_the_plain_corpus(config, tmp_path):
    plain = load_data(replace(config, train=str(tmp_path / "a.txt")))
    alone = load_data(replace(config, train=(Portion(str(tmp_path / "a.txt"), 5),)))
    assert alone.train.shares == plain.train.shares
    assert (alone.train[range(31)][0] == plain.train[range(31)][0]).all()


def test_pairs_mix_too(config, tmp_path):
    for name in "ab":
        lines = [f'{{"q": "{name}{i}", "r": "{name}"}}' for i in range(10)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    portions = tuple(Portion(str(tmp_path / f"{name}.jsonl")) for name in "ab")
    paired = replace(config, train=portions, source_field="q", target_field="r", length=12)
    data = load_data(paired)
    assert data.train.given([0]).sum() == 4
    assert {str(pair) for pair in pairs_from(None, paired)} == {"a", "b"}


def test_a_recipe_names_corpora_and_weights(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("data:\n  train:\n  - {text: a.txt, weight: 2}\n  - text: b.txt\n  - c.txt\n")
    config = resolve(load_recipe(str(path)))
    assert config.data.train == (Portion("a.txt", 2), Portion("b.txt"), Portion("c.txt"))
    assert config.data.trained_on == "2 × a.txt + 1 × b.txt + 1 × c.txt"
    assert from_dict(yaml.safe_load(dump_yaml(config))) == config
    assert resolve(load_recipe(str(path)), [("data.train", "d.txt")]).data.train == "d.txt"


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([{"text": "a", "weight": 0}], r"data.train\[0\].weight must be finite and above 0, not 0"),
        (
            [{"text": "a"}, {"text": "b", "weight": "x"}],
            r"data.train\[1\].weight: 'x' is not a number",
        ),
        ([{"text": "a", "wieght": 1}], r"unknown setting 'data.train\[0\].wieght'"),
        ([{"weight": 1}], r"data.train\[0\].text is empty"),
        ([], "data.train is empty"),
        ([["a"]], r"data.train\[0\] must be a section, but is the value"),
        ({"text": "a"}, "data.train: a list or a section is given, but text is expected"),
    ],
)
def test_mistakes_in_a_mixture(train, message):
    with pytest.raises(UnmaskError, match=message):
        from_dict({"data": {"train": train}})
