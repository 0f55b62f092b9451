"""MAUVE: 1 for the same texts, near 0 for texts that share no cluster, and between for others."""

import math
import sys

import numpy as np
import pytest
import torch

from unmask.errors import UnmaskError
from unmask.evaluation.metrics import mauve as module
from unmask.evaluation.metrics.bootstrap import Figure
from unmask.evaluation.metrics.mauve import SCALE, area, check_packages, mauve, reduced

NOTHING = 5 * 24 * 120 / 3_628_800  # ∫ (1 - w)^5 d(w^5): two histograms that share no cluster


def points(n: int, seed: int, centre: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(n, 12, generator=generator)
    found[:, 0] += 4 + centre
    found[:, 1] += 4 - centre
    return found


# The curve


def test_the_area_by_hand():
    p = np.array([0.5, 0.5, 0.0])
    assert area(p, p) == pytest.approx(1)
    assert area(np.array([1.0, 0, 0]), np.array([0, 0.3, 0.7])) == pytest.approx(NOTHING, rel=0.2)
    # P = (1, 0), Q = (1/2, 1/2): R has w + (1 - w) / 2 of the first
    w = np.linspace(1e-6, 1 - 1e-6, 25)
    first = (1 + w) / 2
    x = np.exp(-SCALE * (0.5 * np.log(0.5 / first) + 0.5 * np.log(0.5 / (1 - first))))
    y = np.exp(-SCALE * -np.log(first))
    x, y = np.array([1, *x, 0]), np.array([0, *y, 1])
    by_hand = sum((x[k] + x[k + 1]) / 2 * (y[k + 1] - y[k]) for k in range(len(x) - 1))
    assert area(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == pytest.approx(by_hand)


def test_the_area_is_symmetric_and_batched():
    generator = np.random.default_rng(0)
    p, q = generator.dirichlet([1.0] * 6, size=(2, 9))
    assert area(p, q) == pytest.approx(area(q, p), rel=1e-6)
    assert area(p, q) == pytest.approx([float(area(a, b)) for a, b in zip(p, q, strict=True)])
    assert ((area(p, q) > 0) & (area(p, q) < 1)).all()


# The figure


def test_equal_different_and_mixed_texts():
    texts = points(120, 0)
    assert mauve(texts, texts).value == pytest.approx(1)
    same = mauve(texts, points(120, 1))
    moved = mauve(texts, points(120, 2, centre=2.0))
    away = mauve(texts, points(120, 3, centre=-40.0))
    assert away.value < 0.03
    assert away.value < moved.value < same.value
    assert same.value > 0.8
    assert away == Figure(away.value, math.inf)  # no resample moves a text to another cluster
    for figure in (same, moved):
        assert 0 <= figure.low <= figure.value <= figure.high <= 1
    assert same.error > 0


def test_the_error_is_the_spread_over_sets_of_texts():
    figures = [mauve(points(60, seed), points(60, 500 + seed, centre=1.0)) for seed in range(25)]
    spread = np.std([figure.value for figure in figures], ddof=1)
    assert 0.5 < np.sqrt(np.mean([figure.error**2 for figure in figures])) / spread < 1.8


def test_the_result_depends_on_the_seed(monkeypatch):
    texts, real = points(60, 0), points(60, 1, centre=1.0)
    begun, labels = [], module._labels

    def remember(points, clusters, seed):
        begun.append(seed)
        return labels(points, clusters, seed)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_labels", remember)
        mauve(texts, real, seed=3)
    assert len(set(begun)) == module.SEEDS
    assert mauve(texts, real, seed=3) == mauve(texts, real, seed=3)
    assert mauve(texts, real, seed=3) != mauve(texts, real, seed=4)


def test_texts_that_are_all_the_same():
    one = torch.ones(8, 4)
    assert mauve(one, one).value == pytest.approx(1)
    assert mauve(one, -one).value == pytest.approx(NOTHING, rel=0.2)
    assert mauve(torch.zeros(3, 4), torch.zeros(2, 4)).value == pytest.approx(1)


def test_the_components_explain_most_of_the_variance():
    generator = np.random.default_rng(0)
    flat = generator.normal(size=(50, 2)) @ generator.normal(size=(2, 10)) + 5
    assert reduced(flat).shape[1] <= 2
    whole = reduced(generator.normal(size=(300, 10)))
    assert whole.shape[1] == 9  # nine tenths of the variance of ten directions
    long, short = reduced(flat * 3), reduced(flat)
    assert np.abs(long) == pytest.approx(np.abs(short))  # only directions count


def test_without_the_package_the_error_has_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UnmaskError, match=r"MAUVE needs sklearn: pip install -e '\.\[eval"):
        check_packages()
