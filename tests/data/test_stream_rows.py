"""Rows of an endless stream equal those of the same finite documents, from any position on."""

from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np
import pytest

from unmask.data.data_config import DataConfig, Portion
from unmask.data.documents.pairs import Pair
from unmask.data.load import load_data, pairs_from, rows_from
from unmask.data.loader import BatchSource, ShortRows
from unmask.data.rows.stream_rows import StreamLoader, StreamPosition, StreamRows
from unmask.data.rows.token_rows import Layout
from unmask.data.sources.corpus import SOURCES, Corpus, Source
from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError

BYTES = ByteTokenizer()


def document(number: int) -> str:
    """A long, short or blank document."""
    return "" if number % 7 == 3 else " ".join(f"w{number}.{i}" for i in range(1 + number * 5 % 23))


def stream(asked: list[int] | None = None) -> Corpus:
    def documents(start: int):
        if asked is not None:
            asked.append(start)
        return map(document, count(start))

    return Corpus.stream("words:", documents)


def table(rows: StreamRows, number: int, place: StreamPosition | None = None) -> tuple[Any, list]:
    found = list(islice(rows.rows(place or StreamPosition()), number))
    return np.stack([row for row, _ in found]), [behind for _, behind in found]


@pytest.mark.parametrize("piece", [1_000_000, 30])
@pytest.mark.parametrize("packing", ["wrap", "join", "pad", "split", "fit"])
def test_a_stream_resumes_from_any_row(packing, piece, monkeypatch):
    monkeypatch.setattr("unmask.data.rows.encode._PIECE", piece)
    monkeypatch.setattr("unmask.data.rows.stream_rows._DOCUMENTS", 8)
    whole, places = table(StreamRows(stream(), BYTES, 12, packing), 300)
    asked: list[int] = []
    for done in (1, 17, 59, 150, 299):
        rows = StreamRows(stream(asked), BYTES, 12, packing)
        again, _ = table(rows, 300 - done, places[done - 1])
        assert (again == whole[done:]).all()
        assert asked[-1] == places[done - 1].document
    assert asked[-1] > 0 and places[150].document > 0  # the stream is not read from its beginning
    if packing != "fit":  # fit fills the rows of a block together
        finite = rows_from(
            list(map(document, range(400))), BYTES, DataConfig(length=12, packing=packing)
        )
        assert (finite.taken(np.arange(300)) == whole).all()


def test_a_stream_with_an_end_begins_again_and_an_empty_one_is_refused():
    short = Corpus.stream("short:", lambda start: iter(["ab", "", "c"][start:]))
    x, _ = StreamLoader(StreamRows(short, BYTES, 5, "pad"), 5, 0).batch(0, range(5))
    assert [BYTES.decode(row) for row in x] == ["ab", "c", "ab", "c", "ab"]
    empty = Corpus.stream("none:", lambda start: iter([" "][start:]))
    with pytest.raises(UnmaskError, match="none: holds no text"):
        StreamLoader(StreamRows(empty, BYTES, 5), 1, 0).batch(0, range(1))


def test_pairs_that_never_fit_are_an_error():
    def documents(start: int):
        return (Pair("a" * 9, "b" * (1 if number % 2 else 99)) for number in count(start))

    loader = StreamLoader(StreamRows(Corpus.stream("p:", documents, True), BYTES, 14, "pairs", Layout(True)), 3, 0)  # fmt: skip
    assert loader.given(0, range(3)).sum() == 3 * 11 and loader.count(0, range(3)) == 3 * 2
    rows = StreamRows(Corpus.stream("p:", documents, True), BYTES, 8, "pairs", Layout(True))
    with pytest.raises(UnmaskError, match="documents of p: give no row of 8 tokens"):
        StreamLoader(rows, 1, 0).batch(0, range(1))


def test_batches_repeat_in_parts_and_after_skipped_ones():
    loader, other = (StreamLoader(StreamRows(stream(), BYTES, 12), 6, 0) for _ in range(2))
    assert isinstance(loader, BatchSource)
    x, valid = loader.batch(0, range(6))
    assert loader.count(0, range(6)) == int(valid.sum())
    assert (loader.batch(0, range(2, 5))[0] == x[2:5]).all()  # the rows of one process, or a retry
    loader.batch(1, range(6))
    place = loader.position
    later = loader.batch(4, range(6))[0]
    other.go_to(place)
    assert (other.batch(4, range(6))[0] == later).all()
    with pytest.raises(IndexError):
        loader.batch(3, range(6))
    short, whole = (ShortRows(StreamLoader(StreamRows(stream(), BYTES, 12), 6, 0), share, 1) for share in (0.9, 0.0))  # fmt: skip
    assert short.count(2, range(6)) == int(short.batch(2, range(6))[1].sum())
    assert short.count(2, range(6)) < whole.count(2, range(6))


@pytest.mark.parametrize("place", [None, {}, {"batch": 1}, [1], "batch"])
def test_an_invalid_position_is_refused(place):
    loader = StreamLoader(StreamRows(stream(), BYTES, 12), 2, 0)
    with pytest.raises(UnmaskError, match="checkpoint"):
        loader.go_to(place)
    with pytest.raises(UnmaskError, match="checkpoint"):
        loader.go_to({**loader.position, "rows": -1})


@pytest.fixture
def words(monkeypatch) -> None:
    """A scheme of endless words."""
    monkeypatch.setattr(SOURCES, "_entries", {name: SOURCES[name] for name in SOURCES})

    @SOURCES.register("words:")
    class Words(Source):
        @classmethod
        def open(cls, spec, fields):
            return replace(stream(), has_fields=True)


def test_a_stream_needs_a_finite_text_to_validate_on(words, tmp_path):
    (tmp_path / "valid.txt").write_text("\n".join(map(document, range(99))))
    config = DataConfig("words:", str(tmp_path / "valid.txt"), separator="line", length=12)
    config = replace(
        config, cache=str(tmp_path), tokenizer=TokenizerConfig("characters", sample=90)
    )
    data = load_data(replace(config, detokenizer="text8"))
    assert len(data.tokenizer.alphabet) < 27 and isinstance(data.train, StreamRows)
    assert "w one" in data.tokenizer.decode(StreamLoader(data.train, 9, 0).batch(0, range(9))[0])
    mixed = (Portion("words:"), Portion(config.valid))
    for wrong, message in {
        "set data.valid to a file or a folder": {"valid": ""},
        "words: is a stream without an end": {"valid": "words:"},
        "cannot be mixed": {"train": mixed},
        "leave data.label_field empty": {"label_field": "x", "packing": "pad"},
    }.items():
        with pytest.raises(UnmaskError, match=wrong):
            load_data(replace(config, **message))
    for ask in (
        lambda: rows_from("words:", BYTES, config),
        lambda: load_data(replace(config, train=config.valid, valid="words:")),
        lambda: list(pairs_from("words:", replace(config, source_field="a", target_field="b", packing="pad"))),
    ):  # fmt: skip
        with pytest.raises(UnmaskError, match="without an end"):
            ask()
