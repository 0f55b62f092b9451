import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unmask.data.data_config import DataConfig
from unmask.data.load import load_data, rows_from
from unmask.data.rows import row_cache as cache
from unmask.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError
from unmask.files.storage import cache_folder

BYTES = ByteTokenizer()


@pytest.fixture
def corpus(tmp_path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n<|endoftext|>\n".join(f"document number {i} of many" for i in range(30)))
    return path


@pytest.fixture
def config(corpus) -> DataConfig:
    return DataConfig(train=str(corpus), tokenizer=TokenizerConfig("bytes"), length=16)


def caches(tmp_path) -> set[str]:
    return {path.name for path in (tmp_path / "cache").glob("*.rows")}


def same(a, b) -> bool:
    everything = range(len(a))
    return all((x == y).all() for x, y in zip(a[everything], b[everything], strict=True))


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters", "text8"])
@pytest.mark.parametrize("packing", ["wrap", "pad", "split"])
def test_the_bundled_corpus_in_every_kind(kind, packing):
    config = DataConfig(tokenizer=TokenizerConfig(kind, 300), length=64, packing=packing)
    data = load_data(config)
    for rows in (data.train, data.valid):
        x, valid = rows[range(len(rows))]
        assert x.shape == valid.shape == (len(rows), 64)
        assert int(valid.sum()) == rows.tokens
        assert 0 < rows.characters <= rows.bytes
        v = data.tokenizer.vocabulary
        assert not (x == v.mask_id).any()
        assert ((x == v.pad_id) == ~valid).all()
        assert (x[:, 0] == v.bos_id).all()


def test_the_alphabet_comes_from_training_documents_only(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(["ab" * 20] * 9) + "\n")
    other = tmp_path / "b.txt"
    other.write_text("abz" * 20)
    base = DataConfig(str(path), str(other), tokenizer=TokenizerConfig("characters"), length=8)
    data = load_data(replace(base, separator="line"))
    assert data.tokenizer.alphabet == "ab\ufffd"
    assert "\ufffd" in data.tokenizer.decode(data.valid[[0]][0][0])


def test_held_out_documents_are_not_trained_on(config):
    data = load_data(replace(config, packing="pad", length=64, holdout=0.2))
    texts = [
        {data.tokenizer.decode(row) for row in rows[range(len(rows))][0]}
        for rows in (data.train, data.valid)
    ]
    assert not texts[0] & texts[1]
    assert len(texts[0] | texts[1]) == 30


def test_a_small_text_has_a_held_out_part(tmp_path):
    """Less than a row of text is measured in a padded row."""
    path = tmp_path / "small.txt"
    path.write_text("A cat sat on a mat. It saw a bird. The bird flew off.\n" * 8)
    data = load_data(DataConfig(str(path), tokenizer=TokenizerConfig("bytes"), length=400))
    assert len(data.valid) == 1
    assert data.train.bytes + data.valid.bytes > 400
    assert int(data.valid[[0]][1].sum()) == data.valid.tokens < 400


def test_a_second_load_reads_the_cache(config, monkeypatch):
    first = load_data(config)
    monkeypatch.setattr("unmask.data.load.pack", None)  # would fail if anything were tokenised
    second = load_data(config)
    assert same(first.train, second.train) and same(first.valid, second.valid)
    assert (first.train.tokens, first.train.bytes) == (second.train.tokens, second.train.bytes)


def test_a_moved_corpus_hits_the_cache(config, corpus, tmp_path, monkeypatch):
    rows_from(str(corpus), BYTES, config)
    moved = corpus.rename(tmp_path / "moved.txt")
    monkeypatch.setattr("unmask.data.load.pack", None)
    rows_from(str(moved), BYTES, config)


@pytest.mark.parametrize(
    "change",
    [
        {"length": 17},
        {"packing": "pad"},
        {"separator": "line"},
        {"text_field": "body"},
        {"detokenizer": "ptb"},
        {"holdout": 0.2},
        {"tokenizer": TokenizerConfig("text8")},
        {"valid": "builtin:pydoc"},
    ],
)
def test_every_option_has_its_own_cache(config, change, tmp_path):
    load_data(config)
    before = caches(tmp_path)
    load_data(replace(config, **change))
    assert len(caches(tmp_path) - before) == 2


def test_content_and_alphabet_have_their_own_caches(config, corpus, tmp_path):
    rows_from(str(corpus), BYTES, config)
    corpus.write_text(corpus.read_text().replace("many", "money"))
    rows_from(str(corpus), BYTES, config)
    assert len(caches(tmp_path)) == 2
    rows_from(str(corpus), CharacterTokenizer("a"), config)
    rows_from(str(corpus), CharacterTokenizer("b"), config)
    assert len(caches(tmp_path)) == 4


def _cut(data, sidecar):
    data.write_bytes(data.read_bytes()[:-2])


def _grow(data, sidecar):
    data.write_bytes(data.read_bytes() + b"\0\0")


def _lose_rows(data, sidecar):
    data.unlink()


def _lose_sidecar(data, sidecar):
    sidecar.unlink()


def _cut_sidecar(data, sidecar):
    sidecar.write_text(sidecar.read_text()[:20])


def _odd_sidecar(data, sidecar):
    sidecar.write_text(json.dumps({"totals": {"rows": 1, "what": 2}}))


@pytest.mark.parametrize(
    "damage", [_cut, _grow, _lose_rows, _lose_sidecar, _cut_sidecar, _odd_sidecar]
)
def test_a_damaged_cache_is_made_again(damage, config, corpus, tmp_path):
    rows = rows_from(str(corpus), BYTES, config)
    x, _ = rows[range(len(rows))]
    (data,), (sidecar,) = ((tmp_path / "cache").glob(f"*.{kind}") for kind in ("rows", "json"))
    size = data.stat().st_size
    damage(data, sidecar)
    again = rows_from(str(corpus), BYTES, config)
    assert data.stat().st_size == size
    assert (again[range(len(again))][0] == x).all()
    assert again.bytes == rows.bytes


def test_nothing_half_written_stays(config, corpus, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(UnmaskError, match=r"No space left on device; free space there or set UNMA"):
        rows_from(str(corpus), BYTES, config)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_full_disk(config, corpus, tmp_path):
    # Every write to this device fails as on a full disk.
    rows = cache.UnfinishedRows(tmp_path, "key", 9)
    (tmp_path / ".key.part").symlink_to("/dev/full")
    with pytest.raises(UnmaskError, match="No space left on device"), cache.making(tmp_path, "key"):
        rows.write([np.ones((9, 4), np.int64)])
    assert cache.stored_rows(tmp_path, "key", 3) is None


def test_an_impossible_cache_folder_is_refused(config, corpus):
    with pytest.raises(UnmaskError, match=r"the cache cannot be written to .*corpus.txt"):
        rows_from(str(corpus), BYTES, replace(config, cache=str(corpus / "inside")))


def test_cache_folder_by_argument_environment_and_home(config, tmp_path, monkeypatch):
    assert cache_folder() == tmp_path / "cache"
    assert cache_folder("~/here") == Path.home() / "here"
    monkeypatch.delenv("UNMASK_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "unmask"
    monkeypatch.setenv("HOME", "/nowhere")
    assert cache_folder() == Path("/nowhere/.cache/unmask")
    rows_from(config.train, BYTES, replace(config, cache=str(tmp_path / "mine")))
    assert len(list((tmp_path / "mine").iterdir())) == 2


def test_a_user_without_a_home_is_asked_for_a_cache_folder(monkeypatch):
    def getpwuid(user: int) -> None:
        raise KeyError(user)

    monkeypatch.delenv("UNMASK_CACHE")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", getpwuid)
    with pytest.raises(UnmaskError, match=r"has no home folder: set UNMASK_CACHE"):
        cache_folder()


@pytest.mark.parametrize(("size", "width"), [(2**16, 2), (2**16 + 1, 4)])
def test_the_width_of_a_token_follows_the_vocabulary(size, width, tmp_path):
    row = [3, 0, size - 1, 1]
    unfinished = cache.UnfinishedRows(tmp_path, "key", size - 1)
    unfinished.totals.rows, unfinished.totals.tokens = 1, 3
    unfinished.write([np.array([row])])
    assert (tmp_path / "key.rows").stat().st_size == 4 * width
    rows = cache.stored_rows(tmp_path, "key", 3)
    assert rows is not None and rows[[0]][0].tolist() == [row[1:]]


def test_padding_gives_a_tokenizer_without_pad_one(config, gpt2_folder):
    config = replace(config, tokenizer=TokenizerConfig("hf", path=str(gpt2_folder)))
    assert load_data(config).tokenizer.vocabulary.pad_id is None
    v = load_data(replace(config, packing="pad")).tokenizer.vocabulary
    assert (v.mask_id, v.pad_id) == (v.size - 2, v.size - 1)


def test_a_given_tokenizer_is_used_as_it_is(config, tokenizers):
    gpt2 = tokenizers["gpt2"]
    assert load_data(replace(config, packing="pad"), gpt2).tokenizer is gpt2


def test_rows_of_texts_stay_in_memory(config, tmp_path):
    rows = rows_from(iter(["héllo", " ", "x"]), BYTES, replace(config, packing="pad"))
    assert (len(rows), rows.length, rows.tokens) == (2, 16, 11)
    assert (rows.bytes, rows.characters) == (7, 6)
    assert not (tmp_path / "cache").exists()
    with pytest.raises(UnmaskError, match="the texts are empty"):
        rows_from(["", "\n"], BYTES, config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"train": ""}, "data.train is empty"),
        ({"holdout": 0.0}, r"data.holdout must lie in \(0, 1\), not 0.0"),
        ({"holdout": float("nan")}, r"data.holdout must lie in \(0, 1\), not nan"),
        ({"length": 2}, "data.length must be 3 or more"),
        ({"length": 10**9}, "data.length must be 3 or more, and 1,048,576 at most"),
        ({"packing": "warp"}, "unknown data.packing 'warp'; did you mean 'wrap'"),
        ({"separator": " "}, "data.separator is empty"),
        ({"text_field": ""}, "data.text_field is empty"),
        ({"label_dropout": 1.0}, r"data.label_dropout must lie in \[0, 1\), not 1.0"),
        ({"label_dropout": -0.1}, r"data.label_dropout must lie in \[0, 1\), not -0.1"),
        ({"label_given": 1.1}, "data.label_given must be 0 or more, and 1 at most"),
        (
            {"label_field": "kind"},
            "needs one document per row: set data.packing to pad, or to split",
        ),
    ],
)
def test_config_ranges(fields, message):
    with pytest.raises(UnmaskError, match=message):
        DataConfig(**fields)


def test_a_tokenizer_learns_from_its_own_source(config, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("xyz " * 40)
    learned = replace(config, tokenizer=TokenizerConfig("characters", source=str(other)))
    assert load_data(learned).tokenizer.encode("document") == load_data(learned).tokenizer.encode(
        "????????"
    )
