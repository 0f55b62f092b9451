"""Rows without EOS between documents, and limits on the number of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.data_config import DataConfig
from unmask.data.load import first_rows, rows_from
from unmask.data.rows import encode as blocks
from unmask.data.rows.packing import pack
from unmask.data.rows.row_counts import Totals
from unmask.data.sources.corpus import Corpus
from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.errors import UnmaskError

BYTES = ByteTokenizer()
BOS, EOS = BYTES.vocabulary.bos_id, BYTES.vocabulary.eos_id


def packed(documents, length, mode, limit=None):
    totals = Totals()
    table = np.concatenate(list(pack(documents, BYTES, length, mode, totals, limit)))
    assert (totals.rows, totals.tokens) == (len(table), table[:, 0].sum())
    return table, totals


def test_join_by_hand():
    table, totals = packed(["abc", "de", "fgh"], 5, "join")
    a, b, c, d, e, f = b"abcdef"
    # Stream: a b c | d e f | g h, the last two left over.
    assert table.tolist() == [[5, BOS, a, b, c, EOS], [5, BOS, d, e, f, EOS]]
    assert (totals.bytes, totals.characters) == (6, 6)


DOCUMENTS = st.lists(st.text("ab cd", min_size=1, max_size=12), min_size=1, max_size=12)


@given(DOCUMENTS, st.integers(3, 9))
def test_joined_rows_are_the_text_cut_into_pieces(documents, length):
    stream, body = "".join(documents).encode(), length - 2
    pieces = [stream[i : i + body] for i in range(0, len(stream) - body + 1, body)]
    if not pieces:
        with pytest.raises(UnmaskError, match=r"set data.packing to split or pad instead of join"):
            packed(documents, length, "join")
        return
    table, totals = packed(documents, length, "join")
    assert table[:, 1:].tolist() == [[BOS, *piece, EOS] for piece in pieces]
    assert totals.bytes == len(pieces) * body


@pytest.mark.parametrize("mode", ["join", "wrap"])
@given(
    documents=DOCUMENTS, length=st.integers(3, 9), limit=st.integers(1, 9), block=st.integers(1, 5)
)
def test_a_limit_gives_the_first_rows_and_counts_them_only(mode, documents, length, limit, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_TEXTS", block)
        try:
            table, totals = packed(documents, length, mode)
        except UnmaskError:
            return
        first, covered = packed(documents, length, mode, limit)
    assert first.tolist() == table[:limit].tolist()
    text = bytes(token for row in first[:, 2:-1].tolist() for token in row if token != EOS)
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
