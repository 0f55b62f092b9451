"""Tokens are drawn at their rates, also rare ones; temperature, top-k and top-p add no tokens."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.diffusion.categorical import BLOCK, draw, sharpen
from unmask.errors import UnmaskError
from unmask.randomness import RowStream, keyed_normals, stream_keys

SEEDS = st.integers(0, 10_000)


def log_probabilities(seed: int, rows: int = 4, size: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.log_softmax(3 * torch.randn(rows, size, generator=generator), -1)


def stratified(count: int) -> torch.Tensor:
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def test_rare_tokens_are_drawn_at_their_rate():
    rare = torch.tensor([1e-6, 0.6, 3e-6, 0.4 - 4e-6], dtype=torch.float64)
    count = 2_000_000
    drawn = draw(rare.log().float().expand(count, -1), stratified(count))
    counts = torch.bincount(drawn, minlength=4).double()
    assert ((counts - count * rare).abs() <= 2).all()


def test_tokens_rarer_than_single_precision_can_tell_are_reached():
    rare = torch.tensor([[1 - 1e-9, 1e-9]]).double().log()
    assert draw(rare, torch.tensor([1 - 0.9e-9], dtype=torch.float64)).item() == 1
    assert draw(rare, torch.tensor([1 - 1.1e-9], dtype=torch.float64)).item() == 0


@given(seed=SEEDS, u=st.floats(0, 1, exclude_max=True))
def test_draw_inverts_the_distribution_function(seed, u):
    log_p = log_probabilities(seed, rows=1).double()
    p = log_p[0].softmax(0)
    token = draw(log_p, torch.tensor([u], dtype=torch.float64)).item()
    assert p[:token].sum() <= u + 1e-12
    assert p[: token + 1].sum() >= u - 1e-12


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
@given(possible=st.lists(st.booleans(), min_size=2, max_size=40).filter(any))
def test_impossible_tokens_are_never_drawn(u, possible):
    log_p = torch.where(torch.tensor(possible), 0.0, -math.inf)[None]
    assert possible[draw(log_p, torch.tensor([u], dtype=torch.float64)).item()]


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 5000])
def test_every_token_of_a_large_vocabulary_is_drawn_where_its_mass_lies(size):
    log_p = log_probabilities(1, rows=1, size=size).double()
    log_p[:, 300:900] = -math.inf  # blocks without mass, too
    end = log_p[0].softmax(0).cumsum(0)
    possible = log_p[0].isfinite()
    middle = (end - log_p[0].softmax(0) / 2)[possible]
    found = draw(log_p.expand(len(middle), -1), middle)
    assert torch.equal(found, possible.nonzero()[:, 0])
    edges = torch.cat([end[:-1], torch.tensor([0.0, 1 - 2**-53]).double()])
    assert possible[draw(log_p.expand(len(edges), -1), edges)].all()


@given(seed=SEEDS, k=st.integers(1, 12))
def test_top_k_keeps_the_k_likeliest(seed, k):
    log_p = log_probabilities(seed)
    kept = sharpen(log_p, top_k=k)
    assert (kept.isfinite().sum(-1) == min(k, 9)).all()
    assert (
        kept.isfinite() == (log_p >= log_p.sort(-1, descending=True).values[:, [min(k, 9) - 1]])
    ).all()
    assert (kept[kept.isfinite()] == log_p[kept.isfinite()]).all()


@given(seed=SEEDS, top_p=st.floats(0.01, 0.99))
def test_top_p_keeps_the_smallest_set_with_that_mass(seed, top_p):
    log_p = log_probabilities(seed).double()
    kept = sharpen(log_p, top_p=top_p).isfinite()
    p = log_p.exp()
    mass = (p * kept).sum(-1)
    assert (mass >= top_p - 1e-9).all()
    least = p.masked_fill(~kept, 2).min(-1).values
    assert (mass - least < top_p + 1e-9).all()
    assert (p.masked_fill(kept, 0).max(-1).values <= least).all()


@given(seed=SEEDS, temperature=st.floats(0.05, 5))
def test_temperature_is_a_power_of_the_probabilities(seed, temperature):
    log_p = log_probabilities(seed).double()
    expected = torch.log_softmax(log_p / temperature, -1)
    torch.testing.assert_close(sharpen(log_p, temperature).log_softmax(-1), expected)


@given(seed=SEEDS, temperature=st.just(0.0) | st.floats(1e-35, 1e-5))
def test_cold_draws_are_the_likeliest_token(seed, temperature):
    log_p = log_probabilities(seed)
    cold = sharpen(log_p, temperature)
    for u in (0.0, 0.9999):
        assert (draw(cold, torch.full((4,), u, dtype=torch.float64)) == log_p.argmax(-1)).all()


@given(seed=SEEDS)
def test_mild_settings_change_nothing(seed):
    log_p = log_probabilities(seed)
    assert torch.equal(sharpen(log_p, 1.0, top_k=9, top_p=1.0), log_p)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
    ],
)
def test_impossible_settings_are_refused(fields):
    with pytest.raises(UnmaskError):
        sharpen(log_probabilities(0), **fields)


def test_normal_numbers_are_finite():
    """Of 2^32 random bits, float32 rounds 65 values to the lower end: one of them occurs in this step."""
    keys = stream_keys(RowStream(1, 92, range(128), 128), "gaussian")
    single, double = (
        keyed_normals(keys, 0, 128, 16, dtype) for dtype in (torch.float32, torch.float64)
    )
    assert single.isfinite().all()
    assert (single - double).abs().max() < 1 and (single - double).abs().mean() < 1e-5
