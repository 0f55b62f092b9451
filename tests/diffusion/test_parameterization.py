"""Parameterizations of a network's scores, and conversions between them."""

import math

import pytest
import torch
from equations import log_x_theta, mean_to_score, score_to_mean
from hypothesis import given
from hypothesis import strategies as st

from unmask.diffusion.nelbo import score_entropy
from unmask.diffusion.parameterization import log_expm1, sedd_log_score, zero_masked

SIZE, MASK = 6, 2


def logits(seed: int = 0, rows: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(rows, SIZE, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("zero_masking", [False, True])
@pytest.mark.parametrize("carry_over", [False, True])
def test_subs_switches_have_their_effects(zero_masking, carry_over):
    z_t = torch.tensor([MASK, 0, 1, MASK, 5, 4, MASK, 3])
    found = log_x_theta(logits(), z_t, MASK, zero_masking, carry_over).exp()
    torch.testing.assert_close(found.sum(-1), torch.ones(8, dtype=torch.float64))
    visible = z_t != MASK
    assert (found[~visible, MASK] == 0).all() == zero_masking
    copies = found[visible, z_t[visible]] == 1
    assert bool(copies.all()) == carry_over


def test_zero_masking_by_bias_is_zero_masking():
    bias = torch.randn(SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with_bias = torch.log_softmax(logits() + zero_masked(bias, MASK), -1)
    z_t = torch.full((8,), MASK)
    torch.testing.assert_close(with_bias, log_x_theta(logits() + bias, z_t, MASK))


@given(seed=st.integers(0, 1000), sigma=st.floats(1e-4, 20))
def test_sedd_score_means_the_softmax_of_its_logits(seed, sigma):
    noise = torch.full((8,), sigma, dtype=torch.float64)
    z_t = torch.full((8,), MASK)
    log_score = sedd_log_score(logits(seed), z_t, noise)
    torch.testing.assert_close(
        score_to_mean(log_score, noise, MASK), log_x_theta(logits(seed), z_t, MASK)
    )


@given(sigma=st.floats(1e-6, 300))
def test_log_expm1_is_stable(sigma):
    found = float(log_expm1(torch.tensor(sigma, dtype=torch.float64)))
    assert found == pytest.approx(math.log(math.expm1(sigma)))


@given(seed=st.integers(0, 1000), sigma=st.floats(1e-3, 100), token=st.integers(3, 5))
def test_score_entropy_is_least_and_the_cross_entropy_at_the_true_score(seed, sigma, token):
    noise = torch.tensor(sigma, dtype=torch.float64)
    log_mean = log_x_theta(logits(seed, 1), torch.tensor([MASK]), MASK)[0]

    def loss(log_score):
        clean = log_score[torch.arange(SIZE) != MASK]
        return score_entropy(log_score[token], clean.logsumexp(0), noise)

    log_score = mean_to_score(log_mean[None], noise[None], MASK)[0]
    ratio = 1 / math.expm1(sigma)
    assert float(loss(log_score)) == pytest.approx(-ratio * float(log_mean[token]), rel=1e-6)
    mean = log_mean.exp()
    clean = [y for y in range(SIZE) if y != MASK]

    def expected(shift):
        values = log_score[clean] + shift
        parts = [score_entropy(v, values.logsumexp(0), noise) for v in values]
        return float(mean[clean] @ torch.stack(parts))

    assert expected(0.0) <= min(expected(0.1), expected(-0.1))


def test_score_entropy_is_finite_in_single_precision_at_every_noise():
    sigma = torch.tensor([1e-4, 1.0, 20.0, 90.0, 200.0])
    assert score_entropy(-sigma, -sigma, sigma).isfinite().all()
