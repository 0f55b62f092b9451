"""Classes of documents, from a field of the corpus to the first token of a row."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hub_dataset import HubDataset

import unmask
from unmask.config.run_config import resolve
from unmask.data.data_config import DataConfig
from unmask.data.documents import labels
from unmask.data.documents.fields import Fields
from unmask.data.documents.labels import Classes, Labelled, label_of
from unmask.data.load import load_data, rows_from
from unmask.data.loader import LabelDropout, Loader
from unmask.data.rows import encode as blocks
from unmask.data.rows.packing import pack
from unmask.data.rows.row_counts import Totals
from unmask.data.rows.token_rows import Rows
from unmask.data.sources.open_source import open_corpus
from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.subwords import train_bpe
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError
from unmask.methods.mdlm import MDLM

READING = Fields("<|endoftext|>", "text", "kind")


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def labelled(source):
    return [(str(document), label_of(document)) for document in open_corpus(str(source), READING)]


def reviews(count=40):
    return [{"text": f"text number {i}", "kind": ("good", "bad")[i % 2]} for i in range(count)]


@pytest.fixture
def config(tmp_path) -> DataConfig:
    source = write(tmp_path / "reviews.jsonl", reviews())
    shape = {"length": 24, "packing": "pad", "tokenizer": TokenizerConfig("bytes")}
    return DataConfig(str(source), label_field="kind", **shape)


def test_labels_of_json_lines_and_parquet(tmp_path):
    kinds = ["b", "", None]
    expected = [("x", "b"), ("y", None), ("z", None)]
    records = [{"text": t, "kind": k} for t, k in zip("xyz", kinds, strict=True)]
    assert labelled(write(tmp_path / "a.jsonl", records)) == expected
    table = pyarrow.table({"kind": kinds, "text": list("xyz"), "other": [1, 2, 3]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert labelled(tmp_path / "a.parquet") == expected


@pytest.mark.parametrize(("value", "name"), [(3, "3"), (-1, "-1"), (True, "true"), ("3", "3")])
def test_numbers_and_truth_values_are_named_by_their_text(value, name, tmp_path):
    assert labelled(write(tmp_path / "a.jsonl", [{"text": "x", "kind": value}])) == [("x", name)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": "x"}, r"a.jsonl:2 has no field 'kind'; it has text: set data.label_field"),
        (
            {"text": "x", "kind": 1.5},
            r"a.jsonl:2: field 'kind' is float; a class label is a text or an",
        ),
        ({"text": "x", "kind": ["a"]}, r"a.jsonl:2: field 'kind' is list"),
        ({"text": "x", "kind": "\ud800"}, r"a.jsonl:2: field 'kind' holds a lone surrogate"),
    ],
)
def test_invalid_classes_are_refused(record, message, tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text": "x", "kind": "a"}, record])
    with pytest.raises(UnmaskError, match=message):
        labelled(path)


def test_labels_of_datasets_by_name_and_in_the_digest(put_datasets):
    names = SimpleNamespace(names=["neg", "pos"])

    def opened(rows, kind):
        records = [{"text": text, "kind": value} for text, value in rows]
        put_datasets(lambda *_, **__: HubDataset(records, kind=kind))
        return labelled("hf:a/b"), open_corpus("hf:a/b", READING).digest

    rows, digest = opened([("x", 1), ("y", 0), ("z", -1), ("u", None)], names)
    assert rows == [("x", "pos"), ("y", "neg"), ("z", None), ("u", None)]
    assert opened([("x", 1)], "int64")[0] == [("x", "1")]
    assert opened([("x", 1), ("y", 1), ("z", -1), ("u", None)], names)[1] != digest
    # a class is not mistaken for the text of another document
    assert opened([("x", "y")], "string")[1] != opened([("x", None), ("y", None)], "string")[1]


def test_rows_begin_with_their_class(config):
    for data in (load_data(config), load_data(replace(config, packing="split", length=9))):
        tokenizer, v = data.tokenizer, data.tokenizer.vocabulary
        assert tokenizer.labels == {"bad": v.size - 2, "good": v.size - 1}
        assert v.label_ids == tuple(tokenizer.labels.values())
        assert ByteTokenizer().vocabulary == replace(v, size=v.size - 2, label_ids=())
        for rows in (data.train, data.valid):
            x, _ = rows[range(len(rows))]
            assert set(x[:, 0].tolist()) == set(tokenizer.labels.values())
            assert not torch.isin(x[:, 1:], x[:, 0].unique()).any()


def test_every_row_of_a_split_document_has_its_class_whatever_the_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_TEXTS", 2)
    tokenizer = ByteTokenizer().with_labels(["a", "b"])
    v, ids = tokenizer.vocabulary, tokenizer.labels
    documents = [Labelled("abcdef", "b"), Labelled("xy", None), "z", Labelled("", "a")]
    rows = np.concatenate(list(pack(documents, tokenizer, 5, "split", Totals())))
    assert rows[:, 1].tolist() == [ids["b"], ids["b"], v.bos_id, v.bos_id, ids["a"]]
    assert [tokenizer.decode(row[1:]) for row in rows] == ["abc", "def", "xy", "z", ""]
    rows = np.concatenate(list(pack(documents, tokenizer, 5, "pad", Totals())))
    assert rows[:, 1].tolist() == [ids["b"], v.bos_id, v.bos_id, ids["a"]]


def test_text_and_class_come_together_through_the_holdout(config):
    data = load_data(config)
    names = {token: name for name, token in data.tokenizer.labels.items()}
    known = {record["text"]: record["kind"] for record in reviews()}
    seen = 0
    for rows in (data.train, data.valid):
        for row in rows[range(len(rows))][0]:
            assert known[data.tokenizer.decode(row)] == names[int(row[0])]
            seen += 1
    assert seen == 40


def test_plain_text_has_no_classes(config, tmp_path):
    (tmp_path / "notes.txt").write_text("a note")
    message = "is plain text, which has no field 'kind': data.label_field needs JSON lines"
    for source in (str(tmp_path / "notes.txt"), str(tmp_path), "builtin:pydoc", "-"):
        for change in ({"train": source}, {"valid": source}):
            with pytest.raises(UnmaskError, match=message):
                load_data(replace(config, **change))
    # a model of labelled text may still read it
    tokenizer = load_data(config).tokenizer
    x, _ = rows_from(str(tmp_path / "notes.txt"), tokenizer, config)[[0]]
    assert int(x[0, 0]) == tokenizer.vocabulary.bos_id


def test_a_class_without_training_documents(config, tmp_path):
    records = [{"text": "x", "kind": "good"}, {"text": "y", "kind": "ugly"}]
    other = write(tmp_path / "other.jsonl", records)
    with pytest.raises(
        UnmaskError, match=r"no training document has the class label 'ugly' \(only bad"
    ):
        load_data(replace(config, valid=str(other)))
    with pytest.raises(UnmaskError, match=r"has the class label 'good' \(only unlabelled ones"):
        rows_from(str(other), ByteTokenizer(), config)


def test_the_number_of_classes_is_limited(monkeypatch):
    monkeypatch.setattr(labels, "MOST_CLASSES", 3)
    documents = [Labelled("x", name) for name in "cabcab"]

    def names(documents: list[str]) -> list[str]:
        classes = Classes("kind")
        assert list(classes.noting(documents)) == documents
        return classes.names()

    assert names([*documents, "plain", Labelled("y", None)]) == ["a", "b", "c"]
    with pytest.raises(
        UnmaskError, match="'kind' has more than 3 values: name a field of class labels"
    ):
        names([*documents, Labelled("x", "d")])
    with pytest.raises(UnmaskError, match="no training document has a class label in"):
        names(["plain", Labelled("y", None)])


def test_the_label_field_has_a_cache_of_its_own(config, tmp_path):
    records = [{**record, "topic": record["kind"]} for record in reviews()]
    config = replace(config, train=str(write(tmp_path / "both.jsonl", records)))
    tokenizer = load_data(config).tokenizer
    before = len(list((tmp_path / "cache").glob("*.rows")))
    load_data(replace(config, label_field="topic"), tokenizer)
    load_data(replace(config, label_field=""), tokenizer)
    assert len(list((tmp_path / "cache").glob("*.rows"))) == before + 4


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters", "text8", "gpt2", "bert"])
def test_a_tokenizer_with_classes(kind, tokenizers, tmp_path):
    plain = tokenizers[kind]
    assert plain.fingerprint and plain.labels == {}
    tokenizer = plain.with_labels(["dog", "日 本"])
    v = tokenizer.vocabulary
    assert tokenizer.labels == {"dog": plain.vocabulary.size, "日 本": plain.vocabulary.size + 1}
    ids = tuple(tokenizer.labels.values())
    assert v == replace(plain.vocabulary, size=plain.vocabulary.size + 2, label_ids=ids)
    ids = tokenizer.encode("the cat sat")
    assert tokenizer.decode([tokenizer.labels["dog"], *ids, v.size - 1]) == "the cat sat"
    fingerprints = {plain.fingerprint, tokenizer.fingerprint}
    fingerprints.add(plain.with_labels(["cat", "日 本"]).fingerprint)
    assert len(fingerprints) == 3
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert (loaded.vocabulary, loaded.labels) == (v, tokenizer.labels)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode("the cat sat") == ids


def test_a_pad_id_and_classes_do_not_collide(tokenizers):
    tokenizer = tokenizers["gpt2"].with_labels(["a"]).with_pad()
    v = tokenizer.vocabulary
    assert (v.pad_id, tokenizer.labels) == (v.size - 1, {"a": v.size - 2})


def test_tokenizers_learn_from_labelled_documents():
    texts = ["low lower lowest new newer newest"] * 3
    documents = [Labelled(text, "a") for text in texts]
    assert train_bpe(documents, 270).fingerprint == train_bpe(texts, 270).fingerprint


# Dropout


def first_tokens(config, seed=0, steps=200, probability=0.3, part=range(8)):
    data = load_data(config)
    loader = Loader(data.train, 8, seed, LabelDropout(data.tokenizer, probability))
    tokens = torch.stack([loader.batch(step, part)[0] for step in range(steps)])
    whole = torch.stack([Loader(data.train, 8, seed).batch(s, part)[0] for s in range(steps)])
    dropped = tokens[..., 0] == data.tokenizer.vocabulary.bos_id
    assert torch.equal(tokens[..., 1:], whole[..., 1:])
    assert torch.equal(tokens[~dropped], whole[~dropped])
    return dropped


def test_dropout_takes_its_share_of_the_classes_and_nothing_else(config):
    dropped = first_tokens(config)
    assert abs(float(dropped.double().mean()) - 0.3) < 4 * (0.3 * 0.7 / dropped.numel()) ** 0.5
    assert not first_tokens(config, probability=0.0).any()


def test_dropout_is_a_function_of_seed_step_and_row(config):
    dropped = first_tokens(config, steps=20)
    assert torch.equal(dropped, first_tokens(config, steps=20))
    assert torch.equal(dropped[:, 3:6], first_tokens(config, steps=20, part=range(3, 6)))
    assert not torch.equal(dropped, first_tokens(config, steps=20, seed=1))
    assert not torch.equal(dropped[0], dropped[1])


def test_some_classes_are_given_with_and_without_dropout(config):
    data = load_data(config)
    loader = Loader(data.train, 8, 0, LabelDropout(data.tokenizer, 0.3, share_given=0.8))
    batches = [
        (loader.batch(step, range(8))[0], loader.given(step, range(8))) for step in range(200)
    ]
    given, bos = torch.stack([g for _, g in batches]), data.tokenizer.vocabulary.bos_id
    dropped = torch.stack([x[:, 0] == bos for x, _ in batches])
    assert not given[..., 1:].any()
    for rows in (dropped, ~dropped):
        share, count = float(given[rows][:, 0].double().mean()), int(rows.sum())
        assert abs(share - 0.8) < 4 * (0.8 * 0.2 / count) ** 0.5
    assert torch.equal(loader.given(7, range(3, 6)), given[7, 3:6])
    assert Loader(data.train, 8, 0, LabelDropout(data.tokenizer, 0.3)).given(0, range(8)) is None


def test_given_classes_are_never_masked_in_training(config, tmp_path, monkeypatch):
    masked, draw = [], MDLM.training_noise

    def record(self, stream, valid):
        noise = draw(self, stream, valid)
        masked.append(noise.masked)
        return noise

    monkeypatch.setattr(MDLM, "training_noise", record)
    data = {"data.train": config.train, "data.label_field": "kind", "data.tokenizer.kind": "bytes"}
    shape = {"data.packing": "pad", "data.length": 24, "training.batch": 16, "training.steps": 4}
    network = {"backbone.width": 8, "backbone.depth": 1, "backbone.heads": 1}
    run = {**data, **shape, **network, "data.label_given": 1.0, "training.validate_every": 0}
    unmask.train(resolve({}, run), tmp_path / "run", say=lambda line: None)
    assert not torch.cat(masked)[:, 0].any() and torch.cat(masked)[:, 1:].any()


def test_dropout_leaves_unlabelled_text_alone():
    tokenizer = ByteTokenizer()
    rows = rows_from(["a"] * 8, tokenizer, DataConfig(packing="pad", length=4))
    loader = Loader(rows, 8, 0, LabelDropout(tokenizer, 0.99))
    assert torch.equal(loader.batch(0, range(8))[0], rows[range(8)][0])
    tokenizer = tokenizer.with_labels(["a"])
    table = np.array([[4, tokenizer.vocabulary.pad_id, 97, 98, 99]] * 8)
    x, _ = Loader(Rows(table, Totals(8)), 8, 0, LabelDropout(tokenizer, 0.99)).batch(0, range(8))
    assert torch.equal(x, torch.from_numpy(table[:, 1:]))
