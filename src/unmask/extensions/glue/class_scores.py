"""Scores of classification and regression, by scikit-learn and scipy."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.imports import extra

Predictions = NDArray[np.floating]  # logits [rows, classes], or numbers [rows, 1]


def scores(
    names: Sequence[str], logits: Predictions, targets: Sequence[int] | Sequence[float]
) -> dict[str, float]:
    """Scores of predictions, in percent.

    Args:
        names: Names of scores: accuracy, f1 (of class 1), matthews, pearson, spearman.
        logits: Outputs of a classifier or of a regression.
        targets: True class or number of each row.

    Returns:
        Score by name. A correlation with constant predictions is 0.
    """
    return {name: 100 * _SCORES[name](np.asarray(logits), np.asarray(targets)) for name in names}


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median of repeated runs and an interval of order statistics that holds for any distribution.

    The interval contains the true median in at least 93.75% of cases with 5 values or more. With
    5 to 7 values it is the smallest and the largest value. Fewer values have an unknown interval.

    Args:
        values: A value for each run.

    Returns:
        Median, lower and upper end; the ends are infinite for fewer than 5 values.

    Example:
        >>> median_interval([1.0, 5.0, 2.0, 4.0, 3.0])
        (3.0, 1.0, 5.0)
    """
    ordered = sorted(values)
    n, middle = len(ordered), float(np.median(ordered))
    if n < 5:
        return middle, -math.inf, math.inf
    outside, drop = 0.0, 0
    while True:
        outside += 2 * math.comb(n, drop) / 2**n
        if outside > 0.0625:
            break
        drop += 1
    drop = max(drop, 1)
    return middle, ordered[drop - 1], ordered[n - drop]


def _accuracy(logits: Predictions, targets: NDArray[Any]) -> float:
    return float(_metrics().accuracy_score(targets, logits.argmax(1)))


def _f1(logits: Predictions, targets: NDArray[Any]) -> float:
    return float(_metrics().f1_score(targets, logits.argmax(1), zero_division=0.0))


def _matthews(logits: Predictions, targets: NDArray[Any]) -> float:
    return float(_metrics().matthews_corrcoef(targets, logits.argmax(1)))


def _correlation(name: str) -> Callable[[Predictions, NDArray[Any]], float]:
    def correlation(logits: Predictions, targets: NDArray[Any]) -> float:
        if np.ptp(logits) == 0 or np.ptp(targets) == 0:
            return 0.0
        return float(getattr(extra("scipy.stats", name, "eval"), name)(logits[:, 0], targets)[0])

    return correlation


def _metrics() -> Any:
    return extra("sklearn.metrics", "a score of classification", "eval")


_SCORES: dict[str, Callable[[Predictions, NDArray[Any]], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": _matthews,
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
}
