import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.rows import encode as blocks
from unmask.data.rows.packing import pack
from unmask.data.rows.row_counts import Totals
from unmask.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from unmask.errors import UnmaskError

BYTES = ByteTokenizer()
V = BYTES.vocabulary


def packed(documents, length, mode, tokenizer=BYTES):
    totals = Totals()
    table = np.concatenate(list(pack(documents, tokenizer, length, mode, totals)))
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


DOCUMENTS = st.lists(st.text("ab cdé", min_size=1, max_size=12), min_size=1, max_size=12)


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
