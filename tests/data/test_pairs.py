"""Pairs of source and target: from every kind of file to rows in which the source is given."""

import gzip
import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hub_dataset import HubDataset

from unmask.data.data_config import DataConfig
from unmask.data.documents.pairs import Pair
from unmask.data.load import load_data, pairs_from, rows_from
from unmask.data.loader import Loader
from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.data.tokenizers.subwords import SubwordTokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError

PAIRS = [("ein Hund", "a dog"), ('die "Katze"', 'the "cat", small'), ("Männer, viele", "men\ttoo")]
BYTES = TokenizerConfig("bytes")


def paired(train: Path | str, **options) -> DataConfig:
    fields = {"source_field": "de", "target_field": "en", "packing": "pad", "length": 40}
    return DataConfig(str(train), str(train), **{"tokenizer": BYTES, **fields, **options})


def complaint(train: Path | str, **options) -> str:
    with pytest.raises(UnmaskError) as caught:
        load_data(paired(train, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(folder: Path, form: str) -> str:
    """Writes the pairs into one or two files of a format."""
    if form.startswith("parallel"):
        gz = form.endswith(".gz")
        for name, side in zip(("de", "en"), zip(*PAIRS, strict=True), strict=True):
            content = "".join(f"{line}\n" for line in side).encode()
            path = folder / f"train.{name}{'.gz' if gz else ''}"
            path.write_bytes(gzip.compress(content) if gz else content)
        return str(folder / "train.{de,en}") + (".gz" if gz else "")
    path = folder / f"pairs.{form}"
    if form == "jsonl":
        records = [json.dumps({"en": en, "id": 3, "de": de}) for de, en in PAIRS]
        path.write_text("\n".join(records) + "\n")
    elif form == "tsv":
        path.write_text("de\ten\n" + "".join(f"{de}\t{en}\n" for de, en in PAIRS[:2]))
    else:
        quoted = [[side.replace('"', '""') for side in pair] for pair in PAIRS]
        content = "en,de\r\n" + "".join(f'"{en}","{de}"\r\n' for de, en in quoted)
        path.write_bytes(lzma.compress(content.encode()))
    return str(path)


@pytest.mark.parametrize("form", ["parallel", "parallel.gz", "jsonl", "tsv", "csv.xz"])
def test_pairs_are_read_from_every_kind_of_file(form, tmp_path):
    found = list(pairs_from(written(tmp_path, form), paired("x")))
    expected = PAIRS[:2] if form == "tsv" else PAIRS  # TSV has no way to write a tab
    assert [(pair.source, str(pair)) for pair in found] == expected


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters", "gpt2", "bert"])
def test_a_row_is_bos_source_eos_target_eos_and_eos(kind, tokenizers):
    tokenizer = tokenizers[kind]
    if isinstance(tokenizer, SubwordTokenizer):
        tokenizer = tokenizer.with_pad()
    bos, eos = tokenizer.vocabulary.bos_id, tokenizer.vocabulary.eos_id
    source, target = "the cat sat", "on the mat."
    rows = rows_from([(source, target), ("a", "b")], tokenizer, paired("x", length=48))
    ids, answer = tokenizer.encode(source), tokenizer.encode(target)
    framed = [bos, *ids, eos, *answer, eos]
    x, valid = rows[range(2)]
    assert x[0].tolist() == framed + [eos] * (48 - len(framed))
    given = rows.given(range(2))
    assert given[0].tolist() == [place < len(ids) + 2 for place in range(48)]
    assert tokenizer.decode(x[0][~given[0]]) == tokenizer.decode(answer)
    assert rows.counted(range(2)).tolist() == [len(answer) + 1, len(tokenizer.encode("b")) + 1]
    assert rows.tokens == int(rows.counted(range(2)).sum())
    assert (rows.bytes, rows.characters) == (len(target) + 1, len(target) + 1)
    assert valid.all()


def test_without_filling_a_row_ends_with_its_target():
    config = paired("x", fill_target=False)
    rows = rows_from([("ab", "cde"), ("a", "b")], ByteTokenizer(), config)
    x, valid = rows[range(2)]
    assert valid.sum(1).tolist() == [8, 5]
    assert rows.counted(range(2)).tolist() == [4, 2]
    whole = rows_from(
        [("ab", "cde"), ("a", "b")], ByteTokenizer(), replace(config, fill_target=True)
    )
    assert torch.equal(x, whole[range(2)][0])


def test_text_has_nothing_given():
    rows = rows_from(["abc", "d"], ByteTokenizer(), DataConfig(packing="pad", length=8))
    assert rows.given(range(2)) is None
    assert rows.counted([1, 0]).tolist() == [3, 5]


@pytest.mark.parametrize("given", [("a",), ("a", "b", "c"), ("a", 2), 1, None, b"ab"])
def test_a_record_that_is_neither_text_nor_pair_is_one_line(given):
    for config in (paired("x"), DataConfig(packing="pad", length=8)):
        with pytest.raises(UnmaskError) as caught:
            rows_from([("c", "d") if config.paired else "c", given], ByteTokenizer(), config)
        assert str(caught.value) == (
            "text 2 is neither a text nor a pair of texts (source, target)"
        )
    with pytest.raises(UnmaskError, match="a list of texts or pairs"):
        rows_from(1, ByteTokenizer(), paired("x"))


@pytest.mark.parametrize("pair", [("ab", "cd"), ["ab", "cd"], Pair("ab", "cd")])
def test_a_source_is_not_dropped_where_it_is_not_read(pair):
    with pytest.raises(UnmaskError) as caught:
        rows_from([pair], ByteTokenizer(), DataConfig(packing="pad", length=8))
    assert "text 1 is a pair, but this model was not trained on pairs" in str(caught.value)
    assert len(rows_from([pair], ByteTokenizer(), paired("x"))) == 1


def test_a_batch_has_a_mask_of_given_tokens(tmp_path):
    data = load_data(paired(written(tmp_path, "parallel")))
    loader = Loader(data.train, 3, seed=1)
    for step in range(3):
        x, _ = loader.batch(step, range(3))
        for row, given in zip(x, loader.given(step, range(3)), strict=True):
            source, target = (data.tokenizer.decode(row[part]) for part in (given, ~given))
            assert (source, target) in PAIRS
    assert loader.count(0, range(3)) == data.train.tokens
    assert (
        Loader(rows_from(["ab"], ByteTokenizer(), DataConfig(packing="pad")), 1, 0).given(
            0, range(1)
        )
        is None
    )


def test_both_sides_make_the_tokenizer(tmp_path):
    tokenizer = load_data(
        paired(written(tmp_path, "parallel"), tokenizer=TokenizerConfig("characters"))
    ).tokenizer
    assert set(tokenizer.alphabet) == {"\ufffd", *"".join(a + b for a, b in PAIRS)}


def test_pairs_that_are_too_long_are_left_out_and_counted(tmp_path):
    source = written(tmp_path, "parallel")
    longest = len("ein Hund") + len("a dog") + 3
    data = load_data(paired(source, length=longest))
    assert (len(data.train), data.train.left_out) == (1, 2)
    assert load_data(paired(source, length=longest)).train.left_out == 2  # from the cache
    assert "no pair fits into a row of 15 tokens: increase data.length" in complaint(
        source, length=longest - 1
    )


def test_each_direction_has_its_own_cache(tmp_path):
    source = written(tmp_path, "parallel")
    there = load_data(paired(source)).train
    back = load_data(paired(source, source_field="en", target_field="de")).train
    text = load_data(
        DataConfig(source, source, tokenizer=BYTES, text_field="en", packing="pad", length=40)
    ).train
    assert there.given([0])[0].sum() == len("ein Hund") + 2
    assert back.given([0])[0].sum() == len("a dog") + 2
    assert text.given([0]) is None
    assert len(list((tmp_path / "cache").glob("*.rows"))) == 3
    load_data(paired(source, fill_target=False))  # the same rows with another rule for filling
    assert len(list((tmp_path / "cache").glob("*.rows"))) == 3


def test_swapped_files_have_their_own_cache(tmp_path):
    """The same content with swapped file names is another corpus."""
    for name, text in {"a.de": "x", "a.en": "yy", "b.en": "x", "b.de": "yy"}.items():
        (tmp_path / name).write_text(text + "\n")
    first = load_data(paired(tmp_path / "a.{de,en}")).train
    second = load_data(paired(tmp_path / "b.{en,de}")).train
    assert (first.given([0]).sum(), second.given([0]).sum()) == (3, 4)


def test_blank_lines_on_both_sides_are_no_pair(tmp_path):
    (tmp_path / "t.de").write_text("eins\n\nzwei\n")
    (tmp_path / "t.en").write_text("one\n\ntwo\n")
    assert len(list(pairs_from(str(tmp_path / "t.{de,en}"), paired("x")))) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"t.de": "a\nb\n", "t.en": "c\n"}, "t.en has 1 lines and "),
        ({"t.de": "a\n", "t.en": "c\nd\n"}, "t.de has 1 lines and "),
        ({"t.de": "a\n\n", "t.en": "c\nd\n"}, ":2: 'de' is empty; a pair needs both sides"),
        ({"t.de": "a\nb\n", "t.en": "c\n \n"}, ":2: 'en' is empty; a pair needs both sides"),
        ({"t.de": "a\n"}, "no file "),
    ],
)
def test_invalid_parallel_files_are_refused(content, message, tmp_path):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    assert message in complaint(tmp_path / "t.{de,en}")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", '{"de": "a"}', "has no field 'en'; it has de: set data.target_field"),
        ("t.jsonl", '{"en": "a"}', "has no field 'de'; it has en: set data.source_field"),
        ("t.jsonl", '{"de": "a", "en": null}', "t.jsonl:1: 'en' is empty"),
        ("t.jsonl", '{"de": "a", "en": 3}', "field 'en' is int, not text"),
        ("t.jsonl", "[1]", "has no field 'de'; it is no JSON object"),
        ("t.csv", "de,fr\na,b\n", "t.csv has no field 'en'; it has de, fr"),
        ("t.csv", "de,en\na\n", "t.csv:2 has 1 fields, the first line 2"),
        ("t.csv", 'de,en\na,"b\n', "cannot be read as a table"),
        ("t.tsv", "de\ten\na\tb\tc\n", "t.tsv:2 has 3 fields, the first line 2"),
        ("t.csv", "de,en\n", "t.csv holds no text"),
        ("t.txt", "a\tb\n", "t.txt is plain text, which has no field 'de': pairs need JSON lines"),
    ],
)
def test_files_without_pairs(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    assert message in complaint(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_field": ""}, "data.source_field and data.target_field need each other"),
        ({"source_field": ""}, "data.source_field and data.target_field need each other"),
        ({"target_field": "de"}, "are both 'de'"),
        ({"packing": "wrap"}, "one pair per row: set data.packing to pad"),
        ({"packing": "split"}, "one pair per row: set data.packing to pad"),
        ({"label_field": "x"}, "data.label_field does not apply to pairs"),
    ],
)
def test_contradictory_settings_are_refused(options, message):
    with pytest.raises(UnmaskError, match=message):
        paired("x", **options)


def test_braces_need_names():
    for braces in ("{de,}", "{de,de}"):
        assert "the braces need different names" in complaint(f"t.{braces}")


def test_a_text_is_no_pair():
    with pytest.raises(UnmaskError, match="this model was trained on pairs"):
        rows_from(["just text"], ByteTokenizer(), paired("x"))
    with pytest.raises(UnmaskError, match="pair 2: 'source' is empty"):
        rows_from([("a", "b"), ("", "c")], ByteTokenizer(), paired("x"))


def test_held_out_pairs_are_those_that_are_not_trained_on(tmp_path):
    for name in ("de", "en"):
        (tmp_path / f"t.{name}").write_text("".join(f"{name}{i}\n" for i in range(50)))
    config = replace(paired(tmp_path / "t.{de,en}"), valid="", holdout=0.2)
    held = {pair.source for pair in pairs_from(None, config)}
    rows = load_data(config).train
    everything = range(len(rows))
    x, given = rows[everything][0], rows.given(everything)
    seen = {ByteTokenizer().decode(row[there]) for row, there in zip(x, given, strict=True)}
    assert held
    assert not held & seen
    assert len(held | seen) == 50


def test_another_source_changes_the_digest_of_a_hub_dataset(put_datasets):
    sides = {"de": "Hund", "en": "dog"}
    put_datasets(lambda *_, **__: HubDataset([sides]))

    def given() -> int:
        return int(load_data(paired("hf:a/b")).train.given([0]).sum())

    assert given() == len("Hund") + 2
    sides["de"] = "Hündchen"
    assert given() == len("Hündchen".encode()) + 2


def test_a_pair_compares_as_its_target():
    assert Pair("a", "b") == "b"
    assert Pair("a", "b").source == "a"
