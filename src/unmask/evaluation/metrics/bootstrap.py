"""Means, shares and ratios over texts, with standard error and bootstrap interval."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
DRAWS = 2000
_BLOCK = 2**22  # texts resampled at a time
_ROUNDING = 1e-12  # a smaller relative error is rounding
_NORMAL = NormalDist()

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """A value, its standard error over texts, and its 95% interval.

    An unknown error or end of the interval is infinite.
    """

    value: float
    error: float
    low: float = -math.inf
    high: float = math.inf


def mean(values: Sequence[float], seed: int = 0) -> Figure:
    """The mean of values; the error of a single value is infinite."""
    return ratio(values, np.ones(len(values)), seed)


def share(hits: Sequence[float]) -> Figure:
    """The share of hits, with Wilson's interval, which is valid also without hits.

    A value between 0 and 1 is a part of a hit; the interval is then wider than it must be. The
    error is infinite if no value or every value is a hit.
    """
    n, z = len(hits), _NORMAL.inv_cdf((1 + LEVEL) / 2)
    p = sum(hits) / n
    middle, scale = (p + z * z / (2 * n)) / (1 + z * z / n), z / (1 + z * z / n)
    half = scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    error = math.sqrt(p * (1 - p) / (n - 1)) if 0 < p < 1 and n > 1 else math.inf
    return Figure(p, error, max(0.0, middle - half), min(1.0, middle + half))


def ratio(numerators: ArrayLike, denominators: ArrayLike, seed: int = 0) -> Figure:
    """A ratio of two sums over texts, such as nats per token; a text is a cluster of tokens.

    The error is that of the delta method. The interval is that of the bias-corrected accelerated
    bootstrap (BCa; Efron, 1987) over whole texts, so it may be asymmetric. If all texts have one
    ratio, both are infinite.
    """
    above, below = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    n, value = len(above), float(above.sum() / below.sum())
    if n < 2:
        return Figure(value, math.inf)
    residuals = above - value * below
    error = math.sqrt(n / (n - 1) * float(residuals @ residuals)) / float(below.sum())
    if error <= _ROUNDING * abs(value):
        return Figure(value, math.inf)
    low, high = _bca(value, _resampled(above, below, seed), _without_each(above, below))
    return Figure(value, error, low, high)


def _resampled(above: Values, below: Values, seed: int) -> Values:
    """The sorted ratios of resamples of the texts; resamples without tokens are left out."""
    parts = [(above[rows].sum(1), below[rows].sum(1)) for rows in resamples(len(above), seed)]
    tops, bottoms = (np.concatenate(sums) for sums in zip(*parts, strict=True))
    return np.sort(tops[bottoms > 0] / bottoms[bottoms > 0])


def resamples(n: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Blocks of `DRAWS` resamples: indices of n texts, drawn with replacement."""
    generator = np.random.Generator(np.random.Philox(key=seed % 2**64))
    size = max(1, _BLOCK // n)
    for start in range(0, DRAWS, size):
        yield generator.integers(n, size=(min(size, DRAWS - start), n))


def percentile(value: float, draws: Values) -> Figure:
    """A value with the error and the percentile interval of its resamples;
    NaN among them is left out.
    """
    draws = draws[np.isfinite(draws)]
    if not len(draws) or draws.min() == draws.max():
        return Figure(value, math.inf)
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Figure(value, float(draws.std()), float(low), float(high))


def _without_each(above: Values, below: Values) -> Values:
    """The jackknife values: the ratio without each text in turn."""
    rest = below.sum() - below
    return (above.sum() - above)[rest > 0] / rest[rest > 0]


def _bca(value: float, draws: Values, jackknife: Values) -> tuple[float, float]:
    """The BCa interval: percentiles of the resamples, corrected for bias and acceleration."""
    below = float((draws < value).mean() + (draws == value).mean() / 2)
    bias = _NORMAL.inv_cdf(min(max(below, 0.5 / len(draws)), 1 - 0.5 / len(draws)))
    deviations = jackknife.mean() - jackknife
    spread = float((deviations**2).sum()) ** 1.5
    acceleration = float((deviations**3).sum()) / (6 * spread) if spread else 0.0
    ends = []
    for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2):
        z = bias + _NORMAL.inv_cdf(share)
        ends.append(_NORMAL.cdf(bias + z / (1 - acceleration * z)))
    low, high = np.quantile(draws, ends)
    return float(low), float(high)
