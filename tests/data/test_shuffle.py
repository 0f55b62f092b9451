"""The order of rows: permutations computed without a list, and mixtures that keep their shares."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.data.rows import shuffle as order
from unmask.data.rows.shuffle import Shares, enciphered, row_indices, rows_per_period
from unmask.randomness import row_uniforms


@given(st.integers(1, 700), st.text(max_size=3))
def test_a_cipher_is_a_permutation(size, key):
    found = enciphered(np.arange(size), size, key)
    assert sorted(found.tolist()) == list(range(size))


def test_a_cipher_spreads_every_row_over_every_place():
    size, keys = 12, 1500
    found = np.array([enciphered(np.arange(size), size, str(key)) for key in range(keys)])
    following = np.diff(found, axis=1) % size  # differences of consecutive rows
    for values, counted in ((range(size), found), (range(1, size), following)):
        shares = np.stack([(counted == value).mean(0) for value in values])
        even = 1 / len(values)
        assert abs(shares - even).max() < 5 * (even / keys) ** 0.5


def test_the_order_of_a_corpus_is_the_recorded_one_up_to_a_size(monkeypatch):
    places = np.arange(20)
    expected = [
        np.argsort(row_uniforms([5], "order of rows", 10, step=e)[0].numpy()) for e in (0, 1)
    ]
    assert row_indices(5, places, Shares((10,))).tolist() == np.concatenate(expected).tolist()
    monkeypatch.setattr(order, "_LISTED", 9)
    ciphered = row_indices(5, places, Shares((10,)))
    assert ciphered.tolist() != np.concatenate(expected).tolist()
    for epoch in (ciphered[:10], ciphered[10:]):
        assert sorted(epoch.tolist()) == list(range(10))


def test_billions_of_rows_need_no_list():
    rows = row_indices(0, np.arange(5) + 10**12, Shares((7 * 10**9,)))
    assert len(set(rows.tolist())) == 5 and (rows < 7 * 10**9).all()


SIZES = st.lists(st.integers(1, 40), min_size=2, max_size=4).map(tuple)


@settings(max_examples=15)
@given(SIZES, st.data(), st.integers(0, 5))
def test_a_mixture_keeps_its_shares_and_each_corpus_its_epochs(sizes, data, seed):
    weights = tuple(data.draw(st.integers(1, 9)) for _ in sizes)
    rows = row_indices(seed, np.arange(1300), Shares(sizes, weights))
    ends = np.cumsum(sizes)
    corpus = np.searchsorted(ends, rows, side="right")
    period = sum(rows_per_period(weights))
    for number, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        here = corpus == number
        for first in range(0, 1300 - period, period):
            assert here[first : first + period].sum() * sum(weights) == weight * period
        own = rows[here] - (ends[number] - size)
        for first in range(0, len(own) - size, size):
            assert sorted(own[first : first + size].tolist()) == list(range(size))
    # any part equals the same part of the whole
    part = np.array([1200, 3, 1024])
    assert row_indices(seed, part, Shares(sizes, weights)).tolist() == rows[part].tolist()


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ((2.0, 1.0), (682, 341)),
        ((0.3, 0.7), (306, 714)),
        ((1.0, 1e-9), (4096, 1)),
        ((1.0, 3.14159), (989, 3107)),
    ],
)
def test_weights_become_rows(weights, counts):
    assert rows_per_period(weights) == counts
