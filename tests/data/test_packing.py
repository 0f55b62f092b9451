"""Documents become rows in every way of packing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.data_config import DataConfig
from unmask.data.load import first_rows, rows_from
from unmask.data.rows import encode as blocks
from unmask.data.rows.best_fit import best_fit
from unmask.data.rows.packing import pack
from unmask.data.rows.row_counts import Totals
from unmask.data.sources.corpus import Corpus
from unmask.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from unmask.errors import UnmaskError

BYTES = ByteTokenizer()
V = BYTES.vocabulary


def packed(documents, length, mode, tokenizer=BYTES, limit=None):
    totals = Totals()
    table = np.concatenate(list(pack(documents, tokenizer, length, mode, totals, limit)))
    assert (totals.rows, totals.tokens) == (len(table), table[:, 0].sum())
    return table, totals


def test_wrap_by_hand():
    table, totals = packed(["abc", "de", "fgh"], 6, "wrap")
    a, b, c, d, e, f = b"abcdef"
    bos, eos = V.bos_id, V.eos_id
    # Stream: a b c EOS | d e EOS f | g h EOS, the last three left over.
    assert table.tolist() == [[6, bos, a, b, c, eos, eos], [6, bos, d, e, eos, f, eos]]
    assert (totals.bytes, totals.characters) == (6, 6)


def test_pad_by_hand():
    table, totals = packed(["ab", "abcdef", "ü"], 5, "pad")
    a, b, c = b"abc"
    bos, eos, pad = V.bos_id, V.eos_id, V.pad_id
    u, umlaut = "ü".encode()
    assert table.tolist() == [
        [4, bos, a, b, eos, pad],
        [5, bos, a, b, c, eos],
        [4, bos, u, umlaut, eos, pad],
    ]
    assert (totals.tokens, totals.bytes, totals.characters) == (13, 7, 6)


def test_split_by_hand():
    table, totals = packed(["abcd", "a"], 5, "split")
    a, b, c, d = b"abcd"
    bos, eos, pad = V.bos_id, V.eos_id, V.pad_id
    assert table.tolist() == [
        [5, bos, a, b, c, eos],
        [3, bos, d, eos, pad, pad],
        [3, bos, a, eos, pad, pad],
    ]
    assert (totals.tokens, totals.bytes, totals.characters) == (11, 5, 5)


@given(st.lists(st.text("ab é", min_size=1, max_size=12), min_size=1), st.integers(3, 9))
def test_split_leaves_nothing_out(documents, length):
    table, totals = packed(documents, length, "split")
    assert totals.characters == sum(map(len, documents))
    content = bytes(token for row in table for token in row[2 : row[0]].tolist())
    assert content.decode() == "".join(documents)


def test_many_short_documents_come_in_several_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_TEXTS", 4)
    tables = list(pack(["x"] * 10, BYTES, 5, "pad", Totals()))
    assert [len(table) for table in tables] == [4, 4, 2]


def reference_wrap(documents, length):
    """The paper's wrapping, written plainly."""
    stream = [token for text in documents for token in [*text.encode(), V.eos_id]]
    body = length - 2
    chunks = [stream[i : i + body] for i in range(0, len(stream), body)]
    return [[V.bos_id, *chunk, V.eos_id] for chunk in chunks if len(chunk) == body]


PLAIN, DOCUMENTS = (
    st.lists(st.text(letters, min_size=1, max_size=12), min_size=1, max_size=12)
    for letters in ("ab cd", "ab cdé")
)


@given(DOCUMENTS, st.integers(3, 9), st.integers(1, 20), st.integers(1, 20))
def test_wrap_equals_the_reference_whatever_the_blocks(documents, length, block, piece):
    expected = reference_wrap(documents, length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_BLOCK", block)
        patch.setattr(blocks, "_PIECE", piece)
        if not expected:
            with pytest.raises(UnmaskError, match="too short for one row"):
                packed(documents, length, "wrap")
            return
        table, totals = packed(documents, length, "wrap")
    assert table[:, 1:].tolist() == expected
    covered = [t for row in expected for t in row[1:-1] if t < 256]
    assert abs(totals.bytes - len(covered)) <= 1  # half an é counts as none
    assert totals.characters == len(bytes(covered).decode("utf-8", "ignore"))


@given(st.text("the cats ,\n1", min_size=1, max_size=80), st.integers(1, 10))
def test_pieces_of_a_document_change_no_token(tokenizers, text, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_PIECE", size)
        pieces = list(blocks.pieces([text]))
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    for tokenizer in tokenizers.values():
        parts = [token for piece in pieces for token in tokenizer.encode(piece.text)]
        assert parts == tokenizer.encode(text)


def test_long_documents_are_cut():
    text = "word " * 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_PIECE", 12)
        pieces = [piece.text for piece in blocks.pieces([text])]
    assert len(pieces) > 2 and "".join(pieces) == text
    assert all(piece.startswith(" ") for piece in pieces[1:])


@pytest.mark.parametrize("mode", ["wrap", "pad", "split"])
@pytest.mark.parametrize("kind", ["bpe", "gpt2", "bert", "characters"])
def test_coverage_is_the_text_of_the_tokens(kind, mode, tokenizers):
    tokenizer = tokenizers[kind]
    documents = ["the cat sat on the mat", "the dog lay on the rug", "the cat saw the dog"]
    table, totals = packed(documents, 9, mode, tokenizer)
    rows = [row[1 : 1 + row[0]] for row in table]
    text = "".join(tokenizer.decode(row) for row in rows)
    squeezed = "".join(documents).replace(" ", "") if kind == "bert" else "".join(documents)
    if mode != "pad":
        decoded = text.replace(" ", "").replace("##", "") if kind == "bert" else text
        assert squeezed.startswith(decoded)
    assert totals.bytes == totals.characters
    assert abs(totals.characters - len(text)) <= (4 if kind == "bert" else 0)


def test_a_tokenizer_without_pad_fills_with_eos_never_mask(tokenizers):
    gpt2 = tokenizers["gpt2"]
    table, _ = packed(["a"], 6, "pad", gpt2)
    assert table[0, 3:].tolist() == [gpt2.vocabulary.eos_id] * 4
    assert table[0, 0] == 3


def test_too_short_for_a_row():
    with pytest.raises(
        UnmaskError, match=r"row of 128 tokens: give more text, or set data.packing to split or pad"
    ):
        packed(["short"], 128, "wrap")


def test_characters_beyond_ascii_are_counted_in_bytes_too():
    _, totals = packed(["日本語日本語"], 5, "wrap", CharacterTokenizer("日本語"))
    assert (totals.characters, totals.bytes) == (6, 18)


# Rows without EOS between documents, and limits


def test_join_by_hand():
    table, totals = packed(["abc", "de", "fgh"], 5, "join")
    bos, eos = V.bos_id, V.eos_id
    a, b, c, d, e, f = b"abcdef"
    # Stream: a b c | d e f | g h, the last two left over.
    assert table.tolist() == [[5, bos, a, b, c, eos], [5, bos, d, e, f, eos]]
    assert (totals.bytes, totals.characters) == (6, 6)


@given(PLAIN, st.integers(3, 9))
def test_joined_rows_are_the_text_cut_into_pieces(documents, length):
    stream, body = "".join(documents).encode(), length - 2
    pieces = [stream[i : i + body] for i in range(0, len(stream) - body + 1, body)]
    if not pieces:
        with pytest.raises(UnmaskError, match=r"set data.packing to split or pad instead of join"):
            packed(documents, length, "join")
        return
    table, totals = packed(documents, length, "join")
    assert table[:, 1:].tolist() == [[V.bos_id, *piece, V.eos_id] for piece in pieces]
    assert totals.bytes == len(pieces) * body


@pytest.mark.parametrize("mode", ["join", "wrap"])
@given(documents=PLAIN, length=st.integers(3, 9), limit=st.integers(1, 9), block=st.integers(1, 5))
def test_a_limit_gives_the_first_rows_and_counts_them_only(mode, documents, length, limit, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_TEXTS", block)
        try:
            table, totals = packed(documents, length, mode)
        except UnmaskError:
            return
        first, covered = packed(documents, length, mode, limit=limit)
    assert first.tolist() == table[:limit].tolist()
    text = bytes(token for row in first[:, 2:-1].tolist() for token in row if token != V.eos_id)
    assert (covered.bytes, covered.characters) == (len(text), len(text))
    assert covered.bytes <= totals.bytes


def test_a_limit_reads_no_more_text_than_its_rows_need(monkeypatch):
    monkeypatch.setattr(blocks, "_TEXTS", 2)
    taken = []

    def read():
        for number in range(100):
            taken.append(number)
            yield "abcd"

    rows = first_rows(Corpus("x", read, str), BYTES, DataConfig(packing="join", length=6), 3)
    assert len(rows) == 3
    assert len(taken) == 4


def test_an_opened_corpus_is_cached_by_its_digest(tmp_path):
    config = DataConfig(packing="join", length=6, cache=str(tmp_path))
    rows_from(Corpus("x", lambda: iter(["abcd"]), lambda: "one"), BYTES, config)
    unread = Corpus("x", lambda: pytest.fail("read again"), lambda: "one")
    assert rows_from(unread, BYTES, config).bytes == 4


def test_a_class_needs_a_row_that_begins_with_its_document():
    with pytest.raises(UnmaskError, match="label_field needs one document per row"):
        DataConfig(packing="join", label_field="kind")


# Rows that hold whole documents


@given(st.lists(st.integers(1, 9), max_size=40))
def test_every_item_once_and_no_bin_too_full(sizes):
    bins = best_fit(sizes, 9)
    assert sorted(item for members in bins for item in members) == list(range(len(sizes)))
    assert all(0 < sum(sizes[item] for item in members) <= 9 for members in bins)
    # no two bins fit into one
    filled = sorted(sum(sizes[item] for item in members) for members in bins)
    assert len(filled) < 2 or filled[0] + filled[1] > 9


def test_the_fullest_bin_with_room_is_taken():
    assert best_fit([5, 7, 3], 10) == [[0], [1, 2]]
    assert best_fit([7, 5, 3], 10) == [[0, 2], [1]]
    assert best_fit([9, 1], 10) == [[0, 1]]


def test_fit_by_hand():
    table, totals = packed(["abcd", "e", "fghijkpq", "n"], 7, "fit")
    bos, eos, pad = V.bos_id, V.eos_id, V.pad_id
    a, b, c, d, e, f, g, h, i, j, k, n, p, q = b"abcdefghijknpq"
    assert table.tolist() == [
        [6, bos, a, b, c, d, eos, pad],
        [6, bos, e, eos, p, q, eos, pad],
        [7, bos, f, g, h, i, j, k],
        [3, bos, n, eos, pad, pad, pad, pad],
    ]
    assert (totals.tokens, totals.bytes, totals.characters) == (22, 14, 14)


@given(st.lists(st.text("ab é", min_size=1, max_size=12), min_size=1), st.integers(3, 9))
def test_fit_leaves_nothing_out(documents, length):
    table, totals = packed(documents, length, "fit")
    assert totals.characters == sum(map(len, documents))
    assert (table[:, 1] == V.bos_id).all()
    rows = [row[2 : 1 + row[0]] for row in table]
    assert sum(int((row == V.eos_id).sum()) for row in rows) == len(documents)
    content = sorted(byte for row in rows for byte in row.tolist() if byte != V.eos_id)
    assert bytes(content) == bytes(sorted("".join(documents).encode()))
    short = {text for text in documents if len(text.encode()) < length - 1}
    whole = {bytes(part).decode(errors="replace") for row in rows for part in _parts(row)}
    assert short <= whole


def _parts(row):
    """The documents of a row."""
    ends = np.flatnonzero(row == V.eos_id)
    return [part[part != V.eos_id].tolist() for part in np.split(row, ends + 1)]
