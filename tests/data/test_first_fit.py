"""Rows that hold whole documents."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.rows.packing import best_fit, pack
from unmask.data.rows.row_counts import Totals
from unmask.data.tokenizers.characters import ByteTokenizer

BYTES = ByteTokenizer()
V = BYTES.vocabulary


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


def packed(documents, length):
    totals = Totals()
    return np.concatenate(list(pack(documents, BYTES, length, "fit", totals))), totals


def test_fit_by_hand():
    table, totals = packed(["abcd", "e", "fghijkpq", "n"], 7)
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
    table, totals = packed(documents, length)
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
