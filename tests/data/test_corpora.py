import bz2
import gzip
import io
import json
import lzma
import os
import sys
import tarfile
import textwrap
import zipfile
from itertools import pairwise
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
from hub_dataset import HubDataset

from unmask.data.documents.fields import Fields
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.sources.corpus import Corpus, hash_documents
from unmask.data.sources.open_source import open_corpus
from unmask.errors import UnmaskError

READING = Fields("<|endoftext|>", "text")


def documents(source, separator="<|endoftext|>", text_field="text"):
    return list(open_corpus(str(source), Fields(separator, text_field)))


def digest(source):
    return open_corpus(str(source), READING).digest


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_pydoc_is_english_text_sorted_by_topic(monkeypatch):
    from pydoc_data.topics import topics

    found = documents("builtin:pydoc")
    assert found == [topics[name].strip() for name in sorted(topics)]
    assert sum(map(len, found)) > 300_000
    assert len(digest("builtin:pydoc")) == 32
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(UnmaskError, match="this Python came without its documentation"):
        documents("builtin:pydoc")
    with pytest.raises(UnmaskError, match="did you mean 'pydoc'"):
        documents("builtin:pydocs")


def test_code_of_packages_is_read_by_name(tmp_path, monkeypatch):
    found = documents("python:yaml,jaxtyping")
    assert any("def safe_load(" in text for text in found)
    assert any("class AbstractArray" in text for text in found)
    assert len(digest("python:yaml")) == 32
    with pytest.raises(UnmaskError, match="python:no_such_package is no installed package"):
        documents("python:no_such_package")
    with pytest.raises(UnmaskError, match="python:__main__ is no installed package"):
        documents("python:__main__")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src" / "folder.py").mkdir(parents=True)
    (tmp_path / "src" / "mine.py").write_text("x = 1\n")
    assert documents("python:./src") == ["x = 1"]
    with pytest.raises(UnmaskError, match=r"python:./none is no folder"):
        documents("python:./none")


def test_separators_of_plain_text(tmp_path):
    path = write(tmp_path / "a.txt", "one\ntwo\n<|endoftext|>\n\nthree\n<|endoftext|>\n")
    assert documents(path) == ["one\ntwo", "\nthree"]
    assert documents(path, "line") == ["one", "two", "<|endoftext|>", "three", "<|endoftext|>"]
    assert documents(path, "file") == [path.read_text().removesuffix("\n")]
    assert documents(path, "two") == ["one", "<|endoftext|>\n\nthree\n<|endoftext|>"]


PROSE = "The long road went over the hill and down to the sea. " * 60


@pytest.mark.parametrize(
    ("text", "count", "first"),
    [
        ("one\ntwo\n<|endoftext|>\n\nthree\n<|endoftext|>\n", 2, "one\ntwo"),
        ("".join(f"Line {n}\nof two.\n\n\n" for n in range(25)), 25, "Line 0\nof two."),
        ("".join(f"name{n}\n" for n in range(25)), 25, "name0"),
        ("\n".join(textwrap.wrap(PROSE, 70)), 10, None),  # broken prose: pieces, not lines
        (PROSE, 20, None),  # one line
        ("A title\n\nAnd one paragraph. It has two sentences.\n" + "x" * 300, 2, None),
    ],
)
def test_documents_are_found_by_the_form_of_the_text(tmp_path, text, count, first):
    found = documents(write(tmp_path / "a.txt", text), "auto")
    assert len(found) == count if first else len(found) >= count
    assert first in (None, found[0])
    joined, whole = ("".join(part.split()) for part in ("".join(found), text))
    assert joined == whole.replace("<|endoftext|>", "")
    if text == PROSE:
        assert all(document.rstrip().endswith(".") for document in found)


def test_many_files_of_a_folder_are_a_document_each(tmp_path):
    for number in range(20):
        write(tmp_path / f"{number:02}.txt", "one\n\ntwo\n")
    assert documents(tmp_path, "auto") == ["one\n\ntwo"] * 20
    assert documents(tmp_path, "paragraph") == ["one", "two"] * 20


def test_line_ends_and_byte_order_mark(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffone\r\n<|endoftext|>\r\ntwo\r\n")
    assert documents(path) == ["one", "two"]


def test_any_name_is_plain_text(tmp_path):
    assert documents(write(tmp_path / "README", "hello")) == ["hello"]
    assert documents(write(tmp_path / "a.tokens", "hello")) == ["hello"]


@pytest.mark.parametrize(
    ("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)]
)
def test_compressed_files_are_read(tmp_path, suffix, compress):
    text = write(tmp_path / f"a.txt.{suffix}", compress("ü\n<|endoftext|>\nb".encode()))
    assert documents(text) == ["ü", "b"]
    lines = write(tmp_path / f"a.jsonl.{suffix}", compress(b'{"text": "x"}\n'))
    assert documents(lines) == ["x"]
    whole = compress(os.urandom(5000).hex().encode())
    with pytest.raises(UnmaskError, match=f"cut.txt.{suffix} (is damaged|cannot be read)"):
        documents(write(tmp_path / f"cut.txt.{suffix}", whole[: len(whole) // 2]))
    with pytest.raises(UnmaskError, match=f"no.txt.{suffix} (is damaged|cannot be read)"):
        documents(write(tmp_path / f"no.txt.{suffix}", b"plain text"))


def test_the_content_decides_about_compression(tmp_path):
    assert documents(write(tmp_path / "a.txt", gzip.compress(b"one"))) == ["one"]
    packed = pyarrow.compress(b"two\n<|endoftext|>\nthree", "zstd", asbytes=True)
    assert documents(write(tmp_path / "b.txt.zst", packed)) == ["two", "three"]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_of_a_zip_archive(tmp_path, method):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("b.jsonl.gz", gzip.compress(b'{"text": "two"}\n{"text": "three"}'))
        archive.writestr("a/a.txt", "one")
        archive.writestr("__MACOSX/a.txt", "no text")
        archive.writestr("picture.png", b"\x89PNG")
    assert documents(path) == ["one", "two", "three"]
    assert digest(path) != digest(write(tmp_path / "b.txt", "one"))
    damaged = write(tmp_path / "cut.zip", path.read_bytes()[:60])
    with pytest.raises(UnmaskError, match=r"cut.zip is a damaged or encrypted archive"):
        documents(damaged)
    with zipfile.ZipFile(tmp_path / "a.docx", "w") as archive:
        archive.writestr("word/document.xml", "<x/>")
    with pytest.raises(UnmaskError, match=r"a.docx is a zip archive without text"):
        documents(tmp_path / "a.docx")


def test_members_of_a_tar_archive(tmp_path):
    path = tmp_path / "a.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for name, content in (("b.csv", b"text,n\none,1\n"), ("a.csv", b"text\ntwo\n")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    corpus = open_corpus(str(path), Fields("auto", "text"))
    assert corpus.has_fields
    assert list(corpus) == ["one", "two"]


def test_json_arrays_and_arrow_files(tmp_path):
    assert documents(write(tmp_path / "a.json", '[{"text": "a"},\n {"text": "b"}]')) == ["a", "b"]
    assert documents(write(tmp_path / "records", '{"text": "a"}\n{"text": "b"}')) == ["a", "b"]
    table = pyarrow.table({"n": [1, 2], "text": ["a", "b"]})
    with pyarrow.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    assert documents(tmp_path / "a.arrow") == ["a", "b"]
    saved = tmp_path / "saved" / "train"
    saved.mkdir(parents=True)
    with pyarrow.ipc.new_stream(saved / "data-00000-of-00001.arrow", table.schema) as file:
        file.write_table(table)
    write(saved / "dataset_info.json", "{}")
    write(saved / "state.json", '{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    write(saved.parent / "dataset_dict.json", '{"splits": ["train"]}')
    assert documents(saved) == documents(saved.parent) == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"%PDF-1.4\n", "a PDF file"),
        (b"GGUF\x03", "a GGUF model"),
        (b"\xff\xfeh\0i\0", "text in UTF-16"),
    ],
)
def test_other_binary_files_are_named(tmp_path, content, kind):
    with pytest.raises(UnmaskError, match=f"a.txt is {kind}: give UTF-8 text"):
        documents(write(tmp_path / "a.txt", content))


def test_json_lines(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a\\nb", "t": "x"}\n\n{"text": null, "t": "y"}\n')
    assert documents(path) == ["a\nb"]
    assert documents(path, text_field="t") == ["x", "y"]


def test_parquet_files_are_read(tmp_path):
    path = parquet(tmp_path / "a.parquet", text=["a", None, "b"], id=[1, 2, 3])
    assert documents(path) == ["a", "b"]
    with pytest.raises(UnmaskError, match="has no field 'body'; it has text, id"):
        documents(path, text_field="body")
    with pytest.raises(UnmaskError, match="field 'id' is int, not text"):
        documents(path, text_field="id")
    with pytest.raises(UnmaskError, match=r"b.parquet is damaged or no Parquet file"):
        documents(write(tmp_path / "b.parquet", b"PAR1 but not really"))


def test_parquet_without_the_extra(tmp_path, monkeypatch):
    path = parquet(tmp_path / "a.parquet", text=["a"])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UnmaskError, match=r"needs pyarrow: pip install -e '\.\[data\]'"):
        documents(path)


def test_a_folder_is_read(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    write(tmp_path / "b" / "2.txt.xz", lzma.compress(b"third"))
    write(tmp_path / "a.jsonl", json.dumps({"text": "first"}))
    parquet(tmp_path / "b" / "1.parquet", text=["second"])
    for ignored in ("picture.png", ".hidden/x.txt", ".x.txt"):
        write(tmp_path / ignored, b"\xff\x00")
    write(tmp_path / "empty.txt", "")
    assert documents(tmp_path) == ["first", "second", "third"]


def test_wrong_encoding_is_named_by_its_byte(tmp_path):
    path = write(tmp_path / "latin.txt", "première\nà bientôt\n".encode("latin-1"))
    with pytest.raises(UnmaskError, match=r"latin.txt:1 is not UTF-8: byte 5 is 0xe8"):
        documents(path)
    path = write(tmp_path / "late.txt", "première\n".encode() + b"ab\xff")
    with pytest.raises(UnmaskError, match=r"late.txt:2 is not UTF-8: byte 12 is 0xff"):
        documents(path)


def test_missing_sources_are_refused(tmp_path):
    with pytest.raises(UnmaskError, match=r"no file or folder .*absent"):
        documents(tmp_path / "absent")
    for text in ("Once.\n", "Once upon a time. " * 20, "é" * 200, "a/" * 3000, "\ud800" * 100):
        with pytest.raises(UnmaskError, match=r"is a text and no file name: give texts as a list"):
            documents(text)
    with pytest.raises(UnmaskError, match=r"the name of a source is empty"):
        documents("")
    with pytest.raises(UnmaskError, match=r"empty.txt is empty"):
        documents(write(tmp_path / "empty.txt", ""))
    with pytest.raises(UnmaskError, match=r"blank.txt holds no text"):
        documents(write(tmp_path / "blank.txt", " \n<|endoftext|>\n\n"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(
        UnmaskError, match="no text, JSON, CSV, Parquet or Arrow files in the folder"
    ):
        documents(tmp_path / "folder")
    with pytest.raises(UnmaskError, match="neither a file nor a folder"):
        documents("/dev/null")


def test_standard_input_can_be_read_twice(monkeypatch):
    stream = io.BytesIO("one\n<|endoftext|>\nzwölf\n".encode())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    corpus = open_corpus("-", READING)
    assert list(corpus) == list(corpus) == ["one", "zwölf"]
    assert len(corpus.digest) == 128


def test_standard_input_errors(monkeypatch):
    for content, message in ((b"", "holds no text"), (b"a\xff", "standard input:1 is not UTF-8")):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        with pytest.raises(UnmaskError, match=message):
            documents("-")


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("hf:owner/name", ("owner/name", None, "train")),
        ("hf:name", ("name", None, "train")),
        ("hf:owner/name:test", ("owner/name", None, "test")),
        ("hf:owner/name/config:train[:1%]", ("owner/name", "config", "train[:1%]")),
    ],
)
def test_datasets_of_the_hub(put_datasets, source, asked):
    def load_dataset(path, name, split):
        assert (path, name, split) == asked
        return HubDataset([{"text": "a", "title": "t"}, {"text": None, "title": "u"}])

    put_datasets(load_dataset)
    assert documents(source) == ["a"]
    assert documents(source, text_field="title") == ["t", "u"]
    with pytest.raises(UnmaskError, match="has no field 'body'; it has text, title"):
        documents(source, text_field="body")


def test_an_unreachable_hub_is_not_waited_for(monkeypatch, put_datasets):
    """The library tries the network six times. In its offline mode it reads its cache at once."""

    def load_dataset(path, name, split):
        modes.append(sys.modules["datasets"].config.HF_HUB_OFFLINE)
        return HubDataset([{"text": "a"}])

    def nowhere(*address):
        raise OSError("Name or service not known")

    modes: list[bool] = []
    monkeypatch.setattr("unmask.files.hub.getproxies", dict)
    for lookup, offline in [(nowhere, True), (lambda *address: ["an address"], False)]:
        monkeypatch.setattr("socket.getaddrinfo", lookup)
        put_datasets(load_dataset)
        sys.modules["datasets"].config.HF_HUB_OFFLINE = False
        assert documents("hf:a/b") == ["a"]
        assert modes.pop() is offline
        assert sys.modules["datasets"].config.HF_HUB_OFFLINE is False


def test_dataset_errors(monkeypatch, put_datasets):
    def load_dataset(path, name, split):
        raise FileNotFoundError("no such dataset\ntraceback")

    put_datasets(load_dataset)
    with pytest.raises(UnmaskError, match=r"hf:a/b cannot be loaded: no such dataset$"):
        documents("hf:a/b")

    def unreachable(path, name, split):
        raise ConnectionError("(OfflineModeIsEnabled)")

    put_datasets(unreachable)
    with pytest.raises(
        UnmaskError, match=r"a/b is not in the local cache, and the hub cannot be reached$"
    ):
        documents("hf:a/b")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UnmaskError, match=r"hf:a/b needs datasets: pip install -e '\.\[data\]'"):
        documents("hf:a/b")


def test_digest_is_of_the_content_not_of_the_path(tmp_path):
    one = write(tmp_path / "one.txt", "hello")
    assert digest(one) == digest(write(tmp_path / "two.txt", "hello"))
    assert digest(one) != digest(write(tmp_path / "three.txt", "hello!"))
    assert digest(one) != digest(write(tmp_path / "one.jsonl", "hello"))


def test_holdout_is_spread_and_leaves_nothing_out(tmp_path):
    path = write(tmp_path / "a.txt", "\n".join(map(str, range(1000))))
    corpus = open_corpus(str(path), Fields("line", "text"))
    held = list(map(int, corpus.part(0.1, True)))
    kept = list(map(int, corpus.part(0.1, False)))
    assert sorted(held + kept) == list(range(1000))
    assert 95 <= len(held) <= 105
    assert max(b - a for a, b in pairwise(held)) < 30


@pytest.mark.parametrize(
    ("sizes", "held"),
    [
        ([50] * 30, [0, 5, 13, 26]),  # equal documents: the hash of the index decides
        ([900, 300, 100, 200, 500], [2]),  # the hash would hold out the first, 45% of the text
        ([30, *[100] * 8], [0, 5]),  # 16%: near enough
        ([1, *[100] * 8], [0, 5]),
        ([1, 100], [0]),  # one document is left to train on
        ([1, *[100] * 4], [0, 2]),  # the hash would hold out one character
        ([400, 300, 300], [2]),  # no choice is near: the smallest document
    ],
)
def test_few_documents_are_held_out_by_size(sizes, held, tmp_path):
    lines = [f"{index}".ljust(size, ".") for index, size in enumerate(sizes)]
    corpus = open_corpus(str(write(tmp_path / "a.txt", "\n".join(lines))), Fields("line", "text"))
    assert list(corpus.part(0.1, True)) == [lines[index] for index in held]
    assert list(corpus.part(0.1, False)) == [
        line for index, line in enumerate(lines) if index not in held
    ]


def test_holdout_of_too_few_documents(tmp_path):
    path = write(tmp_path / "a.txt", "one document")
    corpus = open_corpus(str(path), READING)
    with pytest.raises(UnmaskError, match=r"too few documents to hold 0.1 of them out: set data.v"):
        list(corpus.part(0.1, False))


def test_unreadable_records_are_counted_once_though_the_digest_reads_them_too():
    faults = ReadErrors(0.5)

    def unreadable() -> str:
        raise UnmaskError("no text")

    def read():
        for number in range(6):
            faults.seen += 1
            yield faults.document(unreadable) if number == 0 else f"document {number}"

    corpus = Corpus("objects", read, lambda: hash_documents(read()), True, faults)
    assert len(corpus.sizes) == 5 and corpus.digest
    assert len(list(corpus)) == 5
    assert (faults.passed, faults.seen) == (1, 6)
