"""MAUVE (Pillutla et al., 2021): similarity of the distributions of generated and real texts.

A text is a point: a judge's last hidden state at the last token. The points of both kinds are
normalised, reduced by PCA and clustered together by k-means. P and Q are the two histograms over
clusters. MAUVE is the area under the curve of their divergences from mixtures R of both.
It is 1 if P = Q.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from unmask.evaluation.metrics.bootstrap import Figure, Values
from unmask.imports import extra

SEEDS = 5  # runs of k-means; MAUVE is the mean over them
SCALE = 5.0  # the paper's c: exp(-c KL)
MIXTURES = 25
EXPLAINED = 0.9  # share of the variance that the kept components explain
RESAMPLES = 200


def mauve(
    texts: Float[Tensor, "texts width"], real: Float[Tensor, "others width"], seed: int = 0
) -> Figure:
    """MAUVE of texts against real ones, as a mean over seeds of k-means.

    A histogram of resampled texts is noisier, so MAUVE is lower on resamples. The interval is
    therefore normal around the value, with the variance over resamples and over seeds. If both
    variances are 0, as when no cluster holds texts of both kinds, error and interval are infinite.
    """
    points = reduced(np.concatenate([texts.double().numpy(), real.double().numpy()]))
    smaller = min(len(texts), len(real))
    clusters = min(max(2, round(smaller / 10)), len(np.unique(points, axis=0)))
    areas, variances = [], []
    for number in range(SEEDS):
        labels = _labels(points, clusters, seed + number)
        p = np.bincount(labels[: len(texts)], minlength=clusters)
        q = np.bincount(labels[len(texts) :], minlength=clusters)
        areas.append(float(area(p / p.sum(), q / q.sum())))
        variances.append(_resampled_variance(p, q, seed + number))
    value = math.fsum(areas) / SEEDS
    error = math.sqrt(float(np.mean(variances)) + float(np.var(areas, ddof=1)) / SEEDS)
    if error <= 1e-12:  # rounding
        return Figure(value, math.inf)
    return Figure(value, error, max(0.0, value - 1.96 * error), min(1.0, value + 1.96 * error))


def check_packages() -> None:
    """Raises an error if the packages of MAUVE are missing."""
    extra("sklearn", "MAUVE", "eval")


def reduced(points: Values) -> Values:
    """Points normalised to length 1, in the principal components that explain
    most of their variance.
    """
    points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    if len(np.unique(points, axis=0)) < 3:  # nothing to reduce
        return points
    decomposition: Any = extra("sklearn.decomposition", "MAUVE", "eval")
    pca = decomposition.PCA(svd_solver="full").fit(points)
    share = np.cumsum(pca.explained_variance_ratio_)
    kept = int(np.searchsorted(share, EXPLAINED)) + 1
    components: Values = pca.transform(points)[:, :kept]
    return components


def area(p: Values, q: Values) -> Values:
    """Area under the divergence curve of histograms [..., clusters], within the unit square."""
    weights = np.linspace(1e-6, 1 - 1e-6, MIXTURES)[:, None]
    r = weights * p[..., None, :] + (1 - weights) * q[..., None, :]
    x, y = (np.exp(-SCALE * _divergence(s[..., None, :], r)) for s in (q, p))
    # from R = Q, where x is 1 and y is smallest, to R = P; the first and last points are on the
    # axes
    x = np.concatenate([np.ones_like(x[..., :1]), x, np.zeros_like(x[..., :1])], -1)
    y = np.concatenate([np.zeros_like(y[..., :1]), y, np.ones_like(y[..., :1])], -1)
    under: Values = np.trapezoid(x, y, axis=-1)
    return under


def _divergence(p: Values, r: Values) -> Values:
    """KL(p || r) over the last axis; r must be positive wherever p is."""
    p = np.broadcast_to(p, r.shape)
    terms = np.zeros_like(r)
    np.divide(p, r, out=terms, where=p > 0)
    np.log(terms, out=terms, where=p > 0)
    return np.maximum((p * terms).sum(-1), 0.0)


def _labels(points: Values, clusters: int, seed: int) -> np.ndarray:
    if clusters == 1:
        return np.zeros(len(points), np.int64)
    cluster: Any = extra("sklearn.cluster", "MAUVE", "eval")
    found: np.ndarray = cluster.KMeans(clusters, n_init=5, random_state=seed % 2**32).fit_predict(
        points
    )
    return found


def _resampled_variance(p: np.ndarray, q: np.ndarray, seed: int) -> float:
    """Variance of the area over resamples of both kinds of texts, in the same clusters."""
    generator = np.random.default_rng(seed)
    ps, qs = (
        generator.multinomial(counts.sum(), counts / counts.sum(), RESAMPLES) / counts.sum()
        for counts in (p, q)
    )
    return float(area(ps, qs).var(ddof=1))
