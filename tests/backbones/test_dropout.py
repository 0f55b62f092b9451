"""The dropout mask is a function of (key, site, position), and its values look independent."""

import inspect
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
import torch

from unmask.backbones.layers.dropout import draw_keys, dropout

ROWS, LENGTH, WIDTH, P = 24, 64, 96, 0.1
KEYS = draw_keys(ROWS, torch.device("cpu"))
ONES = torch.ones(ROWS, LENGTH, WIDTH)


def kept(keys: torch.Tensor, site: int = 0, p: float = P) -> torch.Tensor:
    return dropout(ONES[: len(keys)], p, keys, site) > 0


@pytest.fixture(scope="module")
def masks() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    keys = torch.randint(-(2**31), 2**31, (ROWS, 2), generator=generator, dtype=torch.int32)
    return torch.stack([kept(keys, site) for site in range(6)]).double()


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_numbers_are_dropped_at_the_rate_and_scaled_up(p):
    generator = torch.Generator().manual_seed(1)
    keys = torch.randint(-(2**31), 2**31, (ROWS, 2), generator=generator, dtype=torch.int32)
    y = dropout(ONES, p, keys, 3)
    torch.testing.assert_close(y[y > 0], torch.full_like(y[y > 0], 1 / (1 - p)))
    error = (p * (1 - p) / y.numel()) ** 0.5
    assert abs((y == 0).double().mean() - p) < 4 * error


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_rates_by_site_row_column_and_channel_have_binomial_spread(masks, dim):
    others = [other for other in range(4) if other != dim]
    rates = masks.mean(others)
    counted = masks.numel() / len(rates)
    chi_square = ((rates - (1 - P)) ** 2).sum() * counted / (P * (1 - P))
    assert abs(chi_square - len(rates)) < 5 * (2 * len(rates)) ** 0.5


def test_positions_rows_and_sites_are_uncorrelated(masks):
    centred = (masks - (1 - P)) / (P * (1 - P)) ** 0.5
    for dim in range(4):
        for shift in (1, 2, 5):
            product = centred * centred.roll(shift, dim)
            assert abs(product.mean()) < 5 / product.numel() ** 0.5


def test_a_row_alone_and_tokens_alone_have_the_same_mask():
    whole = kept(KEYS, 7)
    assert torch.equal(kept(KEYS[5:6], 7)[0], whole[5])
    at = torch.tensor([0, 63, 64, 700, 1535])
    some = dropout(ONES.flatten(0, 1)[at], P, KEYS, 7, at, LENGTH) > 0
    assert torch.equal(some, whole.flatten(0, 1)[at])


def test_without_keys_nothing_is_dropped():
    assert dropout(ONES, P, None, 0) is ONES
    assert dropout(ONES, 0.0, KEYS, 0) is ONES


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_and_a_compiler_draw_the_same_mask():
    there = ONES.cuda(), KEYS.cuda()
    expected = dropout(ONES, P, KEYS, 4)
    assert torch.equal(dropout(there[0], P, there[1], 4).cpu(), expected)
    compiled = torch.compile(unchecked().dropout)
    assert torch.equal(compiled(there[0], P, there[1], 4).cpu(), expected)


def unchecked() -> ModuleType:
    """The module without shape checks, which the compiler cannot trace."""
    file = sys.modules[inspect.unwrap(dropout).__module__].__file__
    spec = spec_from_file_location("unchecked_dropout", file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
