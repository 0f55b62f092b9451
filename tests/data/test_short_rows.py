"""Rows that are cut short in training."""

import numpy as np
import pytest
import torch

from unmask.data.data_config import DataConfig
from unmask.data.loader import Loader, ShortRows
from unmask.data.rows.row_counts import Totals
from unmask.data.rows.token_rows import Rows
from unmask.errors import UnmaskError

EOS = 999
LENGTH = 12


def rows(valid: int = LENGTH) -> Rows:
    """Rows of the numbers 1, 2, 3, …, of which the first `valid` are valid."""
    table = np.tile(np.arange(1 + LENGTH), (40, 1))
    table[:, 0] = valid
    return Rows(table, Totals(40, 40 * valid))


@pytest.mark.parametrize("valid", [LENGTH, 5])
def test_some_rows_end_early_with_eos(valid):
    loader = Loader(rows(valid), 400, seed=0)
    short = ShortRows(loader, 0.5, EOS)
    x, there = short.batch(0, range(400))
    whole, _ = loader.batch(0, range(400))
    ends = there.sum(1)
    assert (there == (torch.arange(LENGTH) < ends[:, None])).all()  # a prefix is valid
    cut = ends < valid
    assert set(ends[cut].tolist()) == set(range(3, valid))
    assert (x[cut, ends[cut] - 1] == EOS).all()
    kept = torch.arange(LENGTH) < (ends - cut.long())[:, None]
    assert torch.equal(x[kept], whole[kept])
    assert torch.equal(x[~cut], whole[~cut])
    # half of the rows get a random length, which cuts a row if it is below its valid tokens
    expected = 0.5 * (valid - 3) / (LENGTH - 3)
    assert abs(cut.double().mean() - expected) < 4 * (expected * (1 - expected) / 400) ** 0.5
    assert short.count(0, range(400)) == int(there.sum())


def test_cuts_are_a_function_of_seed_step_and_row():
    short = ShortRows(Loader(rows(), 16, seed=3), 0.5, EOS)
    x, there = short.batch(7, range(16))
    for part in (range(5), range(5, 16)):
        some, valid = short.batch(7, part)
        assert torch.equal(some, x[part.start : part.stop])
        assert torch.equal(valid, there[part.start : part.stop])
    assert not torch.equal(short.batch(8, range(16))[1], there)
    assert not torch.equal(ShortRows(short.loader, 0.5, EOS).batch(7, range(16))[0], whole_rows())
    assert short.given(7, range(16)) is None


def whole_rows() -> torch.Tensor:
    return torch.arange(1, 1 + LENGTH).repeat(16, 1)


def test_the_share_is_checked():
    with pytest.raises(UnmaskError, match=r"data\.shorten must lie in \[0, 1\), not 1.0"):
        DataConfig(shorten=1.0)
    with pytest.raises(UnmaskError, match=r"data\.shorten does not apply to pairs"):
        DataConfig(shorten=0.1, source_field="de", target_field="en", packing="pad")
