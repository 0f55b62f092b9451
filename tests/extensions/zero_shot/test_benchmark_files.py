"""File formats of benchmarks with their odd cases, and one-line errors for broken files."""

import json
import lzma

import pytest

from unmask.data.sources.line_reader import matching_files
from unmask.errors import UnmaskError
from unmask.extensions.zero_shot.benchmark_files import Columns, Lines, Objects, file_corpus

PAPERS = Objects("article_text")
NEWS = Columns(3, (1, 2))


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("form", "content", "documents"),
    [
        (Lines(), " a b \n\n \n c\r\n", ["a b", "c"]),
        (Lines(whole=True), " a b \n\n \n c", [" a b \n", " c"]),
        (Objects(), '{"text": "a\\nb"}\n\n{"text": null}\n{"text": "“"}', ["a\nb", "“"]),
        # a list is joined by line ends, and two objects may share a line
        (PAPERS, '{"article_text": ["a .", "b ."]}{"article_text": ["c"]}\n', ["a .\nb .", "c"]),
        (NEWS, '"3","A, b","c ""d"" \\e"\n"4", "f","g\nh"\n\n', ['A, b c "d" \\e', "f g\nh"]),
    ],
)
def test_records_of_each_format(write, form, content, documents):
    assert list(file_corpus([write(content)], form)) == documents


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        (Lines(), b"fine\nb\xffd\n", r"a.txt:\d is not UTF-8: byte 6 is 0xff; convert it"),
        (Objects(), b'{"text": "\xff"}', r"a.txt:\d is not UTF-8: byte 10 is 0xff"),
        (NEWS, b"1,2,\xff", r"a.txt:\d is not UTF-8: byte 4 is 0xff"),
        (Lines(), "", r"a.txt holds no text$"),
        (NEWS, "\n", r"a.txt holds no text$"),
        (Objects(), "{}\n", r"a.txt:1 has no field 'text'$"),
        (Objects(), '{"text": "a"}\n["text"]', r"a.txt:2 has no field 'text'$"),
        (Objects(), '{"text": "a"} x', r"a.txt:1 is not JSON$"),
        (PAPERS, '{"article_text": [3]}', r"a.txt:1: field 'article_text' is int, not text$"),
        (NEWS, "1,2\n", r"a.txt:1 has 2 columns, not 3$"),
    ],
)
def test_a_broken_file_is_one_line(write, form, content, message):
    with pytest.raises(UnmaskError, match=message) as caught:
        list(file_corpus([write(content)], form))
    assert "\n" not in str(caught.value)


def test_the_digest_is_of_content_and_form(write):
    a, b = write("x y\n"), write("x y\n", "b.txt")
    assert file_corpus([a], Lines()).digest == file_corpus([b], Lines()).digest
    others = [file_corpus([a], Lines(whole=True)), file_corpus([a, b], Lines())]
    assert len({corpus.digest for corpus in [file_corpus([a], Lines()), *others]}) == 3


def test_several_files_are_read_in_order_and_named_together(write, tmp_path):
    corpus = file_corpus([write("a\n"), write("b\n", "b.txt")], Lines())
    assert list(corpus) == ["a", "b"]
    assert corpus.name == f"2 files in {tmp_path}"


def test_names_of_files_compressed_or_not(write, tmp_path):
    assert matching_files(tmp_path, "set.jsonl") == []
    packed = write(lzma.compress(json.dumps({"text": "x"}).encode()), "set.jsonl.xz")
    assert matching_files(tmp_path, "set.jsonl") == [packed]
    assert list(file_corpus([packed], Objects())) == ["x"]
    # the same text is never read twice
    plain = write('{"text": "x"}', "set.jsonl")
    assert matching_files(tmp_path, "set.jsonl") == [plain]
    parts = [write("x", f"part-{i}") for i in (2, 1)]
    assert matching_files(tmp_path, "part-?") == parts[::-1]
