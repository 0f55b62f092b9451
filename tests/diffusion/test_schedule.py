"""Schedules fall from clean to masked; their derivative, inverse and noise are consistent."""

import math

import pytest
import torch
from builders import schedule
from hypothesis import given
from hypothesis import strategies as st

from unmask.diffusion.schedule import SCHEDULES, Learned
from unmask.errors import UnmaskError

NAMES = list(SCHEDULES)
T = torch.linspace(0, 1, 201, dtype=torch.float64)
FIELDS = st.fixed_dictionaries(
    {
        "eps": st.floats(0, 0.4),
        "power": st.floats(0.5, 6),
        "sigma_min": st.floats(1e-4, 0.5),
        "sigma_max": st.floats(1, 20),
        "degree": st.integers(1, 12),
    }
)


def derivative(function, t: torch.Tensor) -> torch.Tensor:
    t = t.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(t).sum(), t)
    return slope


@pytest.mark.parametrize("name", NAMES)
def test_alpha_falls_from_clean_to_masked(name):
    alpha = SCHEDULES.build(name).alpha(T).detach()
    assert 0.998 < alpha[0] <= 1
    assert 0 <= alpha[-1] < 2e-3
    assert (alpha.diff() < 0).all()


@pytest.mark.parametrize("name", NAMES)
@given(fields=FIELDS)
def test_ends_are_where_the_fields_put_them(name, fields):
    built = schedule(name, **fields)
    first, last = built.alpha(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
    if hasattr(built, "eps"):
        assert (first, last) == pytest.approx((1, built.eps), abs=1e-12)
    else:
        ends = math.exp(-built.sigma_min), math.exp(-built.sigma_max)
        assert (first, last) == pytest.approx(ends)


@pytest.mark.parametrize("name", NAMES)
@given(fields=FIELDS)
def test_derivatives_equal_autograd(name, fields):
    built, t = schedule(name, **fields), T[1:-1]
    torch.testing.assert_close(built.alpha_prime(t), derivative(built.alpha, t))
    torch.testing.assert_close(built.sigma_prime(t), derivative(built.sigma, t))
    assert (built.alpha_prime(t) <= 0).all()


@pytest.mark.parametrize("name", NAMES)
@given(fields=FIELDS)
def test_alpha_is_exp_of_minus_sigma(name, fields):
    built = schedule(name, **fields)
    torch.testing.assert_close(built.sigma(T[:-1]), -built.alpha(T[:-1]).log())


@pytest.mark.parametrize("name", NAMES)
@given(fields=FIELDS)
def test_inverse_finds_the_time(name, fields):
    built = schedule(name, **fields)
    alpha = built.alpha(T).detach()
    found = built.inverse(alpha)
    torch.testing.assert_close(built.alpha(found).detach(), alpha, rtol=0, atol=1e-12)
    # where alpha is flat, its value hardly determines the time
    steep = built.alpha_prime(T).detach().abs() > 1e-2
    torch.testing.assert_close(found[steep], T[steep], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_inverse_stays_in_time_for_any_alpha(name):
    times = SCHEDULES.build(name).inverse(T)
    assert ((times >= 0) & (times <= 1)).all()


def test_untrained_learned_schedule_is_log_linear():
    torch.testing.assert_close(
        SCHEDULES.build("learned").alpha(T).detach(), SCHEDULES.build("loglinear").alpha(T)
    )


def second_moment(built: Learned, g: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """E over uniform t of (r'(t) g(r))^2 as an integral over the mask ratio r."""
    speed = -built.alpha_prime(built.inverse(1 - r))
    return torch.trapezoid(speed * g**2, r)


def test_second_moment_has_the_gradient_of_the_real_one():
    built = schedule("learned", eps=0.0)
    grid = torch.linspace(0, 1, 2_001, dtype=torch.float64)
    t = (grid[1:] + grid[:-1]) / 2
    weight_at = lambda r: 1 + torch.exp(2 * r)  # noqa: E731

    r = 1 - built.alpha(t).detach()
    loss = -built.alpha_prime(t).detach() * weight_at(r)
    built.second_moment(t, loss, torch.ones_like(t)).mean().backward()

    for index in range(built.degree):
        moved = []
        for step in (1e-3, -1e-3):
            with torch.no_grad():
                built.logits[index] += step
                moved.append(second_moment(built, weight_at(grid), grid))
                built.logits[index] -= step
        expected = float(moved[0] - moved[1]) / 2e-3
        assert float(built.logits.grad[index]) == pytest.approx(expected, rel=1e-2, abs=1e-4)


def test_descending_the_second_moment_lowers_the_variance_and_keeps_the_mean():
    built = Learned(Learned.Config(eps=0.0))
    t = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    optimizer = torch.optim.Adam(built.parameters(), lr=0.05)

    def losses() -> torch.Tensor:
        r = 1 - built.alpha(t).detach()
        return -built.alpha_prime(t).detach() * (0.2 + 3 * r**2)

    before = losses()
    for _ in range(100):
        optimizer.zero_grad()
        built.second_moment(t, losses(), torch.ones_like(t)).mean().backward()
        optimizer.step()
    after = losses()
    assert after.var() < 0.2 * before.var()
    assert float(after.mean()) == pytest.approx(float(before.mean()), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("loglinear", {"eps": -0.1}),
        ("polynomial", {"power": 0.0}),
        ("linear", {"sigma_min": 2.0, "sigma_max": 1.0}),
        ("learned", {"degree": 0}),
    ],
)
def test_impossible_fields_are_refused(name, fields):
    with pytest.raises(UnmaskError):
        schedule(name, **fields)
