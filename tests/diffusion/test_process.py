"""One step back in time is Bayes' rule on the forward process."""

import torch
from equations import posterior
from hypothesis import given
from hypothesis import strategies as st

from unmask.diffusion.nelbo import d3pm_divergence
from unmask.diffusion.process import masked_tokens, q_sample, unmask_probability

SIZE, MASK = 4, 3
LEVELS = st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)).map(sorted)


def q(alpha: float, clean: torch.Tensor) -> torch.Tensor:
    """q(z_t | x) for a distribution over x, with one row for each clean token."""
    return alpha * clean + (1 - alpha) * torch.eye(SIZE, dtype=torch.float64)[MASK]


def bayes(x: torch.Tensor, alpha_s: float, alpha_t: float) -> torch.Tensor:
    """q(z_s | z_t, x) as [z_t, z_s], by enumeration of all pairs."""
    forward = q(alpha_t / alpha_s, torch.eye(SIZE, dtype=torch.float64))  # [z_s, z_t]
    joint = q(alpha_s, x)[:, None] * forward
    return (joint / joint.sum(0)).T


def ours(x: torch.Tensor, alpha_s: float, alpha_t: float) -> torch.Tensor:
    z_t = torch.arange(SIZE)
    level = torch.ones(SIZE, dtype=torch.float64)
    return posterior(z_t, x.expand(SIZE, SIZE), alpha_s * level, alpha_t * level, MASK)


def distribution(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(torch.randn(SIZE, generator=generator, dtype=torch.float64), 0)


@given(levels=LEVELS, seed=st.integers(0, 1000))
def test_posterior_is_bayes_rule_even_with_mass_on_mask(levels, seed):
    alpha_t, alpha_s = levels
    x = distribution(seed)
    torch.testing.assert_close(ours(x, alpha_s, alpha_t), bayes(x, alpha_s, alpha_t))


@given(levels=LEVELS, token=st.integers(0, 2))
def test_posterior_of_a_known_token_is_bayes_rule(levels, token):
    alpha_t, alpha_s = levels
    x = torch.eye(SIZE, dtype=torch.float64)[token]
    possible = [token, MASK]  # of z_t
    torch.testing.assert_close(
        ours(x, alpha_s, alpha_t)[possible], bayes(x, alpha_s, alpha_t)[possible]
    )


@given(levels=LEVELS, seed=st.integers(0, 1000))
def test_one_step_back_from_t_is_the_forward_process_at_s(levels, seed):
    alpha_t, alpha_s = levels
    x = distribution(seed)
    torch.testing.assert_close(q(alpha_t, x) @ ours(x, alpha_s, alpha_t), q(alpha_s, x))


@given(levels=LEVELS, seed=st.integers(0, 1000), token=st.integers(0, 2))
def test_d3pm_divergence_is_the_kl_of_the_posteriors(levels, seed, token):
    alpha_t, alpha_s = levels
    x_theta = distribution(seed)
    p = ours(x_theta, alpha_s, alpha_t)[MASK]
    true = ours(torch.eye(SIZE, dtype=torch.float64)[token], alpha_s, alpha_t)[MASK]
    kl = (torch.xlogy(true, true) - torch.xlogy(true, p)).sum()
    rates = torch.tensor([alpha_s, alpha_t], dtype=torch.float64)
    found = d3pm_divergence(x_theta[token].log(), x_theta[MASK].log(), *rates)
    torch.testing.assert_close(found, kl, rtol=1e-6, atol=1e-9)


@given(alpha_t=st.floats(0, 0.99), log_m=st.floats(-50, -0.1))
def test_d3pm_divergence_is_finite_for_the_step_into_clean_text(alpha_t, log_m):
    values = torch.tensor([-1.0, log_m, 1.0, alpha_t], dtype=torch.float64)
    found = d3pm_divergence(*values)
    expected = 1 + torch.log1p(alpha_t * values[1].exp() / (1 - alpha_t))
    torch.testing.assert_close(found, expected)


@given(levels=LEVELS)
def test_tokens_are_revealed_at_the_rate_of_the_posterior(levels):
    alpha_t, alpha_s = (torch.tensor(level, dtype=torch.float64) for level in levels)
    stays = ours(torch.eye(SIZE, dtype=torch.float64)[0], float(alpha_s), float(alpha_t))[
        MASK, MASK
    ]
    torch.testing.assert_close(1 - unmask_probability(alpha_s, alpha_t), stays)


def test_tokens_are_masked_at_their_rate_and_padding_never():
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(4, 50_000, generator=generator, dtype=torch.float64)
    alpha = torch.tensor([1.0, 0.7, 0.2, 0.0], dtype=torch.float64)
    valid = torch.rand(u.shape, generator=generator) < 0.5
    masked = masked_tokens(u, alpha, valid)
    assert not masked[~valid].any()
    rate = masked.sum(1) / valid.sum(1)
    torch.testing.assert_close(rate.double(), 1 - alpha, rtol=0, atol=0.02)
    x = torch.randint(0, MASK, u.shape, generator=generator)
    z = q_sample(x, masked, MASK)
    assert (z[masked] == MASK).all()
    assert (z[~masked] == x[~masked]).all()
