"""How far an estimate may lie from what it estimates: Student's t, with the degrees of freedom of a sum."""

import math
from statistics import NormalDist

import numpy as np

CONFIDENCE = 0.99
FEWEST = 3  # degrees of freedom that an error needs to be told without its interval
_NORMAL = 1e6  # degrees of freedom from which Student's t is the normal distribution
_NODES = 1 << 16


def pooled_freedom(draws: int, variance: float, squares: float) -> float:
    """Degrees of freedom of a sum of blocks' variances, each of `draws` draws (Satterthwaite).

    `variance` is their sum and `squares` that of their squares: one block has draws - 1, n equal blocks
    have n (draws - 1).
    """
    if not squares > 0:
        return math.inf
    return (draws - 1) * max(1.0, variance**2 / squares)  # less than 1 is rounding


def student_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """How many standard errors to each side hold the true value with this confidence."""
    if freedom > _NORMAL:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    # T = sqrt(freedom) tan(angle), and the angle's density is cos(angle) ** (freedom - 1)
    widest = min(math.pi / 2, 40 / math.sqrt(freedom))
    angle = np.linspace(0, widest, _NODES)
    density = np.maximum(np.cos(angle), 0) ** (freedom - 1)
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    found = np.interp(confidence * mass[-1], mass, angle)
    return math.sqrt(freedom) * math.tan(found)
