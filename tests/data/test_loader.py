import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.loader import Loader
from unmask.data.rows.row_counts import Totals
from unmask.data.rows.token_rows import Rows, batches
from unmask.errors import UnmaskError


def numbered(count: int, length: int = 3) -> Rows:
    """Rows whose tokens are their own number; the last position is never valid."""
    table = np.repeat(np.arange(count)[:, None], 1 + length, axis=1)
    table[:, 0] = length - 1
    return Rows(table, Totals(count))


def steps(loader: Loader, count: int) -> list[int]:
    return [
        int(token)
        for step in range(count)
        for token in loader.batch(step, range(loader.size))[0][:, 0]
    ]


@given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 2**31))
def test_every_row_once_an_epoch_and_every_batch_full(count, batch, seed):
    order = steps(Loader(numbered(count), batch, seed), 12)
    assert len(order) == 12 * batch
    for start in range(0, len(order) - count + 1, count):
        assert sorted(order[start : start + count]) == list(range(count))


def test_a_batch_is_a_function_of_seed_and_step():
    rows = numbered(50)
    order = steps(Loader(rows, 8, 1), 20)
    later = Loader(rows, 8, 1)
    assert later.batch(13, range(8))[0][:, 0].tolist() == order[13 * 8 : 14 * 8]
    assert steps(later, 20) == order
    assert steps(Loader(rows, 8, 2), 20) != order


def test_epochs_are_shuffled_differently():
    order = steps(Loader(numbered(50), 10, 0), 10)
    assert order[:50] != order[50:]
    assert order[:50] != list(range(50))


@given(st.integers(0, 16), st.integers(0, 16))
def test_parts_make_up_the_batch(a, b):
    loader = Loader(numbered(11), 16, 3)
    low, high = sorted((a, b))
    whole = loader.batch(4, range(16))
    parts = [loader.batch(4, part) for part in (range(low), range(low, high), range(high, 16))]
    for index in range(2):
        assert torch.equal(torch.cat([part[index] for part in parts]), whole[index])


def test_part_outside_the_batch():
    loader = Loader(numbered(11), 4, 0)
    for part in (range(5), range(-1, 2)):
        with pytest.raises(IndexError, match="of a batch of 4"):
            loader.batch(0, part)
    with pytest.raises(UnmaskError, match="batch size is 0"):
        Loader(numbered(11), 0, 0)


def test_rows_by_range_and_by_indices():
    rows = numbered(5)
    x, valid = rows[np.array([4, 0])]
    assert x.dtype == torch.int64 and valid.dtype == torch.bool
    assert x.tolist() == [[4] * 3, [0] * 3]
    assert valid.tolist() == [[True, True, False]] * 2
    assert rows[range(1, 3)][0][:, 0].tolist() == [1, 2]
    assert rows[range(0)][0].shape == (0, 3)
    with pytest.raises(IndexError):
        rows[range(4, 6)]


def test_batches_in_order_with_a_smaller_last_one():
    seen = [(first, x[:, 0].tolist(), valid.shape) for first, x, valid in batches(numbered(5), 2)]
    assert seen == [(0, [0, 1], (2, 3)), (2, [2, 3], (2, 3)), (4, [4], (1, 3))]
