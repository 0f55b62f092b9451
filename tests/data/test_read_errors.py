"""Unreadable records are skipped, counted and reported, and too many of them are an error."""

import bz2
import gzip
import json
import lzma
from dataclasses import replace

import pyarrow
import pyarrow.parquet
import pytest

from unmask.data.data_config import DataConfig, Portion
from unmask.data.documents.fields import Fields
from unmask.data.load import load_data, rows_from
from unmask.data.sources import line_reader as lines
from unmask.data.sources.open_source import open_corpus
from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError

FINE = 300
READING = Fields("line", "text", corrupt=0.05)


def read(path, reading=READING):
    corpus = open_corpus(str(path), reading)
    return list(corpus), corpus.faults


def record(i):
    return json.dumps({"text": f"text {i}"}).encode()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"text": "\xff"}', r":101 is not UTF-8: byte \d+ is 0xff"),
        (b'{"text": "\x00"}', ":101 holds a NUL byte"),
        (b'{"text": ', ":101 is not JSON"),
        (b"[" * 100_000, ":101 is not JSON"),
        (b'{"body": "x"}', ":101 has no field 'text'; it has body: set data"),
        (b'"x"', ":101 has no field 'text'; it is no JSON object"),
        (b'{"text": 7}', ":101: field 'text' is int"),
        (b'{"text": "\\ud800"}', ":101: field 'text' holds a lone surrogate"),
    ],
)
def test_bad_records_are_skipped_and_the_first_is_named(tmp_path, bad, reason):
    path = tmp_path / "a.jsonl"
    content = [record(i) for i in range(FINE)]
    content[100] = content[200] = bad
    path.write_bytes(b"\n".join(content))
    documents, faults = read(path)
    assert documents == [f"text {i}" for i in range(FINE) if i not in (100, 200)]
    assert (faults.passed, faults.seen) == (2, FINE)
    with pytest.raises(UnmaskError, match=f"a.jsonl{reason}") as caught:
        read(path, Fields("line", "text", corrupt=0.005))
    assert "(2 of 300 lines or records cannot be read; data.corrupt allows 0.005" in str(caught)
    with pytest.raises(UnmaskError, match=reason):
        read(path, Fields("line", "text"))


@pytest.mark.parametrize("bad", [b"too,many,fields", b'1,"no end', b"\xff,x", b"a\x00,x"])
def test_a_bad_row_of_a_table(tmp_path, bad):
    path = tmp_path / "a.csv"
    rows = [b"id,text", *(f"{i},text {i}".encode() for i in range(FINE))]
    path.write_bytes(b"\n".join([*rows, bad]))
    documents, faults = read(path)
    assert documents == [f"text {i}" for i in range(FINE)]
    assert faults.passed == 1 and f"a.csv:{FINE + 2}" in faults.first


def test_a_bad_line_takes_its_parallel_line_with_it(tmp_path):
    sides = {"de": [b"satz %d" % i for i in range(50)], "en": [b"line %d" % i for i in range(50)]}
    sides["en"][7] = b"\xff"
    for name, side in sides.items():
        (tmp_path / f"t.{name}").write_bytes(b"\n".join(side))
    pairs = Fields("line", "text", source_field="de", target_field="en", corrupt=0.05)
    documents, faults = read(tmp_path / "t.{de,en}", pairs)
    assert [(d.source, str(d)) for d in documents] == [
        (f"satz {i}", f"line {i}") for i in range(50) if i != 7
    ]
    assert (faults.passed, faults.seen) == (1, 50)  # pairs, not the lines of both
    assert "t.en:8 is not UTF-8" in faults.first
    (tmp_path / "t.de").write_bytes(b"\n".join([*sides["de"][:7], b"\xff", *sides["de"][8:]]))
    faults = read(tmp_path / "t.{de,en}", pairs)[1]
    assert (faults.passed, faults.seen) == (1, 50)


@pytest.mark.parametrize(
    ("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)]
)
def test_a_compressed_file_is_read_up_to_where_it_is_damaged(tmp_path, suffix, compress):
    text = "\n".join(f"{i} {hash((i, suffix))}" for i in range(60_000)).encode()
    path = tmp_path / f"a.txt.{suffix}"
    packed = compress(text)
    path.write_bytes(packed[: len(packed) * 4 // 5])
    documents, faults = read(path)
    assert documents == text.decode().split("\n")[: len(documents)]
    assert 1000 < len(documents) < 59_000
    assert (faults.passed, faults.seen) == (0, len(documents))
    (told,) = faults.files
    assert f"is damaged or cut short: {len(documents):,} lines were read" in told
    with pytest.raises(UnmaskError, match="lines were read, the rest is skipped"):
        read(path, Fields("line", "text"))


def test_a_parquet_file_is_read_up_to_where_it_is_damaged(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": [f"text {i}" for i in range(2000)]})
    pyarrow.parquet.write_table(table, path, row_group_size=500, compression="gzip")
    place = pyarrow.parquet.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[place + 60 : place + 90] = bytes(30)
    path.write_bytes(content)
    documents, faults = read(path)
    assert documents == [f"text {i}" for i in range(len(documents))] and len(documents) >= 500
    assert faults.passed == 0
    assert f"Parquet file: {len(documents):,} records were read" in faults.files[0]


def test_each_damaged_file_is_reported_with_all_other_faults(tmp_path):
    text = gzip.compress("".join(f"{i} {hash((i, 'x'))}\n" for i in range(2000)).encode())
    for number in range(1, 24):
        (tmp_path / f"{number:02}.txt.gz").write_bytes(
            text[: len(text) // 2 if number > 1 else None]
        )
    (tmp_path / "00.txt").write_bytes(b"\xff\n")
    (tmp_path / "24.parquet").write_bytes(b"no Parquet")
    source, cache = str(tmp_path), str(tmp_path / ".cache")
    bytes_ = TokenizerConfig("bytes")
    config = DataConfig(source, tokenizer=bytes_, length=512, separator="line", cache=cache)
    notes = load_data(config).notes
    assert notes[0].startswith("skipped 1 of ") and "00.txt:1 is not UTF-8" in notes[0]
    for number in range(2, 22):
        assert f"{number:02}.txt.gz is damaged or cut short: " in notes[number - 1]
    assert notes[21:] == (f"3 more files of {source} are damaged",)
    mixed = replace(config, train=(Portion(source), Portion(str(tmp_path / "01.txt.gz"))))
    rows = load_data(mixed).train
    assert len(rows.faults.files) == 23 and rows.unread.count("is damaged or cut short") == 20
    with pytest.raises(UnmaskError, match=r"24.parquet is damaged or no Parquet file: 0 records"):
        read(tmp_path / "24.parquet")


def test_a_long_field_of_a_table_is_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1," + "x" * 200_000 + "\n2,short\n")
    documents, faults = read(path)
    assert list(map(len, documents)) == [200_000, 5] and faults.passed == 0


@pytest.mark.parametrize("end", [b"", b'"x', b'",y'])
def test_a_quote_without_end_counts_all_that_it_takes_along(tmp_path, end):
    path = tmp_path / "a.csv"
    rows = [b"id,text", *(f"{i},text {i}".encode() for i in range(FINE))]
    rows[10], rows[-1] = b'9,"no end', b"300," + end
    path.write_bytes(b"\n".join(rows))
    with pytest.raises(UnmaskError, match=r"a.csv:11 .*\(291 of 301 lines or records"):
        read(path)


def test_a_line_without_end_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 100)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"a\n" * 50 + b"x" * 100_000 + b"\nb\n"))
    documents, faults = read(path)
    assert documents == ["a"] * 50 + ["b"]
    assert faults.passed == 1 and "a.txt.gz:51 is longer than 100 bytes" in faults.first


def test_a_wrong_field_is_reported_before_everything_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"body": "x"}\n' * 5000)
    corpus = open_corpus(str(path), READING)
    with pytest.raises(UnmaskError, match=r"a.jsonl:1 has no field 'text'; it has body: set data"):
        list(corpus)
    assert corpus.faults.seen == 1000


def test_faults_are_reported_again_from_the_cache(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([*map(record, range(FINE)), b"{"]))
    config = DataConfig(str(path), tokenizer=TokenizerConfig("bytes"), length=16)
    notes = [load_data(config).notes for _ in range(2)]
    assert notes[0] == notes[1] and len(notes[0]) == 1
    assert notes[0][0].startswith("skipped 1 of 301 lines or records of")
    assert notes[0][0].endswith(f"a.jsonl:{FINE + 1} is not JSON")
    strict = DataConfig(str(path), tokenizer=TokenizerConfig("bytes"), length=16, corrupt=0.001)
    with pytest.raises(UnmaskError, match=r"data.corrupt allows 0.001"):
        load_data(strict)
    assert rows_from(str(path), ByteTokenizer(), config).faults.passed == 1
