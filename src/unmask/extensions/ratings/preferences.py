"""Preferences between models: Bradley–Terry scores, and the agreement of raters."""

from collections.abc import Hashable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from unmask.evaluation.metrics.bootstrap import Values

_MOST_ROUNDS = 10_000
_TOLERANCE = 1e-10


def bradley_terry(wins: ArrayLike) -> Values:
    """The scores of the Bradley–Terry model: log P(i beats j) / P(j beats i) = score i − score j.

    The fit is Hunter's MM algorithm (2004). A tie is half a win of each. One more tie of each pair
    keeps the scores finite if a model wins every comparison.

    Args:
        wins: [..., models, models], the wins of model i against model j.

    Returns:
        [..., models], the scores; their mean is 0.

    Example:
        >>> bradley_terry([[0, 9.5], [0.5, 0]]).round(2).tolist()
        [1.15, -1.15]
    """
    w = np.asarray(wins, np.float64)
    w = w + 0.5 * (1 - np.eye(w.shape[-1]))
    games, won = w + np.swapaxes(w, -1, -2), w.sum(-1)
    p = np.ones_like(won)  # strengths
    for _ in range(_MOST_ROUNDS):
        new = won / (games / (p[..., :, None] + p[..., None, :])).sum(-1)
        new /= np.exp(np.log(new).mean(-1, keepdims=True))
        change, p = np.abs(new - p).max(), new
        if change < _TOLERANCE:
            break
    return np.log(p)


def krippendorff_alpha(units: Sequence[Sequence[Hashable]]) -> float | None:
    """Krippendorff's alpha for nominal labels, with any number of raters and missing labels.

    Args:
        units: the labels of each unit, one for each rater who labelled it.

    Returns:
        1 for full agreement, 0 for agreement by chance; None if no unit has two labels, or if all
        labels are equal.

    Example:
        >>> krippendorff_alpha([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
        0.5333333333333333
    """
    paired = [labels for labels in units if len(labels) > 1]
    kinds = {label: i for i, label in enumerate(dict.fromkeys(chain(*paired)))}
    if len(kinds) < 2:
        return None
    counts = np.zeros((len(paired), len(kinds)))
    for row, labels in enumerate(paired):
        for label in labels:
            counts[row, kinds[label]] += 1
    sizes, totals = counts.sum(1), counts.sum(0)
    # pairs of different labels within a unit, and among all labels
    observed = ((sizes**2 - (counts**2).sum(1)) / (sizes - 1)).sum()
    expected = (totals.sum() ** 2 - (totals**2).sum()) / (totals.sum() - 1)
    return float(1 - observed / expected)
