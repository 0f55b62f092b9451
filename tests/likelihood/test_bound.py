"""Student's t against tabulated values, and the degrees of freedom of a sum of variances."""

import math

import pytest

from unmask.likelihood.bound import pooled_freedom, student_quantile

TABLE = [  # two-sided 99%, from a textbook
    (1, 63.657), (2, 9.925), (3, 5.841), (4, 4.604), (5, 4.032), (7, 3.499), (10, 3.169),
    (21, 2.831), (30, 2.750), (60, 2.660), (120, 2.617), (math.inf, 2.576),
]  # fmt: skip


@pytest.mark.parametrize(("freedom", "value"), TABLE)
def test_quantiles_are_those_of_the_table(freedom, value):
    assert student_quantile(freedom) == pytest.approx(value, abs=5.1e-4)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99, 0.999])
def test_closed_forms_at_one_and_two_degrees(confidence):
    one = math.tan(math.pi * confidence / 2)
    two = confidence * math.sqrt(2 / (1 - confidence**2))
    assert student_quantile(1, confidence) == pytest.approx(one, rel=1e-5)
    assert student_quantile(2, confidence) == pytest.approx(two, rel=1e-5)


def test_quantiles_fall_smoothly_between_whole_degrees():
    found = [student_quantile(f) for f in (1.0, 1.5, 2.0, 6.3, 7.0, 999_999.0, 1_000_001.0)]
    assert found == sorted(found, reverse=True)
    assert found[-2] == pytest.approx(found[-1], rel=1e-5)


def test_equal_blocks_have_a_degree_for_each_draw_but_one():
    assert pooled_freedom(5, 3.0, 9.0) == 4
    assert pooled_freedom(5, 6 * 3.0, 6 * 9.0) == pytest.approx(24)
    # if one block varies far more than the others, only its degrees of freedom remain
    assert pooled_freedom(5, 100.0 + 6 * 0.01, 100.0**2) == pytest.approx(4, rel=1e-2)


def test_without_spread_the_degrees_of_freedom_are_infinite():
    assert pooled_freedom(4, 0.0, 0.0) == math.inf
