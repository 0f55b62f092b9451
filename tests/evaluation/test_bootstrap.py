"""Bootstrap intervals over texts: they agree with scipy's BCa and have the stated coverage."""

import math

import numpy as np
import pytest
from scipy import stats

from unmask.evaluation.metrics import bootstrap
from unmask.evaluation.metrics.bootstrap import Figure, mean, ratio, share


def skewed(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Nats and tokens of texts of different lengths,
    with a skewed distribution of nats per token.
    """
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, 40, n).astype(float)
    return tokens * generator.lognormal(0.5, 0.8, n), tokens


@pytest.mark.parametrize("seed", range(4))
def test_the_interval_is_that_of_scipy(seed, monkeypatch):
    monkeypatch.setattr(bootstrap, "DRAWS", 40_000)
    nats, tokens = skewed(25, seed)
    ours = ratio(nats, tokens, seed)
    theirs = stats.bootstrap(
        (nats, tokens),
        lambda a, b, axis: a.sum(axis) / b.sum(axis),
        n_resamples=20_000,
        paired=True,
        vectorized=True,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    assert ours.value == pytest.approx(nats.sum() / tokens.sum())
    near = 0.04 * (theirs.high - theirs.low)  # both intervals are random
    assert ours.low == pytest.approx(theirs.low, abs=near)
    assert ours.high == pytest.approx(theirs.high, abs=near)


def test_the_interval_has_its_stated_coverage():
    """400 sets determine the share to 1.1%. Four times that is a false alarm in 16,000."""
    truths = {"mean": 1.0, "ratio": math.exp(0.5 + 0.8**2 / 2)}
    held = dict.fromkeys(truths, 0)
    for seed in range(400):
        exponential = np.random.default_rng(seed).exponential(1.0, 60)
        figures = {"mean": mean(exponential, seed), "ratio": ratio(*skewed(80, seed), seed)}
        for name, figure in figures.items():
            held[name] += figure.low <= truths[name] <= figure.high
    for name, count in held.items():
        assert 0.90 < count / 400 < 0.985, name


def test_the_error_is_the_spread_of_the_figure():
    figures = [ratio(*skewed(80, seed), seed) for seed in range(300)]
    spread = np.std([figure.value for figure in figures])
    assert np.sqrt(np.mean([figure.error**2 for figure in figures])) == pytest.approx(
        spread, rel=0.17
    )


def test_the_result_depends_on_the_seed_only(monkeypatch):
    values = skewed(30, 0)
    assert ratio(*values, 1) == ratio(*values, 1)
    assert ratio(*values, 1).low != ratio(*values, 2).low
    whole = ratio(*values, 1)
    monkeypatch.setattr(bootstrap, "_BLOCK", 64)  # in many blocks
    assert ratio(*values, 1) == whole


def test_known_and_unknown_ends_of_an_interval():
    for figure in (
        mean([3.0]),
        mean([3.0] * 5),  # equal values do not bound the spread of other texts
        ratio([0.3, 0.6, 2.1], [0.1, 0.2, 0.7]),  # equal ratios up to rounding
        ratio([0.0, 6.0, 0.0], [0.0, 2.0, 0.0]),  # two texts are empty
    ):
        assert figure.value == pytest.approx(3.0)
        assert (figure.error, figure.low, figure.high) == (math.inf, -math.inf, math.inf)
    assert mean([0.0] * 5) == Figure(0.0, math.inf)
    assert mean([3.0, 3.0, 3.0 + 1e-6]).low < mean([3.0, 3.0, 3.0 + 1e-6]).high


def test_the_ends_are_moved_by_twice_the_bias():
    """Three tenths of the draws are below the value. The error does not change, so a = 0."""
    draws = np.linspace(0, 1, 100_001)
    bias = stats.norm.ppf(0.3)
    expected = stats.norm.cdf([2 * bias - 1.959964, 2 * bias + 1.959964])
    assert bootstrap._bca(0.3, draws, np.array([-1.0, 1.0])) == pytest.approx(expected, abs=1e-4)


def test_a_share_of_nothing_has_an_interval():
    for hits in (0, 6, 12):
        figure = share([number < hits for number in range(12)])
        wilson = stats.binomtest(hits, 12).proportion_ci(method="wilson")
        assert (figure.low, figure.high) == pytest.approx((wilson.low, wilson.high))
        assert figure.value == hits / 12
    assert share([True, False, False, False]).error == mean([1.0, 0, 0, 0]).error
    for alike in ([True], [True] * 12, [False] * 3):  # equal results do not exclude others
        assert share(alike).error == math.inf
