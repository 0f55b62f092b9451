"""The training order: the row at each position is a function of (seed, position).

The order of a single corpus of at most 2²⁴ rows is an argsort of random keys. In larger
corpora and mixtures a cipher permutes the row numbers, which needs no memory.
"""

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from unmask.randomness import row_uniforms

Indices = NDArray[np.int64]

_LISTED = 2**24  # most rows of a corpus whose order is an argsort
_PERIOD = 1024  # approximate rows of a period: a stretch of the order with the same rows per corpus
_LONGEST = 4096  # most rows of a period, unless there are more corpora than that
_ROUNDS = 8  # of the Feistel cipher


@dataclass(frozen=True)
class Shares:
    """The number of rows and the weight of each corpus."""

    sizes: tuple[int, ...]
    weights: tuple[float, ...] = (1.0,)


def row_indices(seed: int, positions: Indices, shares: Shares) -> Indices:
    """Row indices at `positions` of the training order.
    They run through all corpora in sequence.
    """
    if len(shares.sizes) == 1:
        return _epochs(seed, "order of rows", positions, shares.sizes[0], _LISTED)
    corpus, turn = _turns(seed, positions, shares.weights)
    rows = np.empty_like(positions)
    first = 0
    for number, size in enumerate(shares.sizes):
        chosen = corpus == number
        rows[chosen] = first + _epochs(seed, f"order of corpus {number}", turn[chosen], size, 0)
        first += size
    return rows


def _epochs(seed: int, name: str, positions: Indices, size: int, listed: int) -> Indices:
    """Row indices of one corpus. Each epoch has every row once, in its own order."""
    epochs, positions = np.divmod(positions, size)
    rows = np.empty_like(positions)
    for epoch in np.unique(epochs).tolist():
        chosen = epochs == epoch
        if size <= listed:
            rows[chosen] = _order(seed, name, epoch, size)[positions[chosen]]
        else:
            rows[chosen] = enciphered(positions[chosen], size, f"{seed}/{name}/{epoch}")
    return rows


@lru_cache(maxsize=2)  # a batch may span two epochs
def _order(seed: int, name: str, epoch: int, size: int) -> Indices:
    keys = row_uniforms([seed], name, size, step=epoch)[0]
    return np.argsort(keys.numpy(), kind="stable")


def enciphered(numbers: Indices, size: int, key: str) -> Indices:
    """A permutation of 0 … size - 1, evaluated at `numbers`: a cycle-walking Feistel cipher.

    The cipher permutes the numbers of `2 * half` bits, at most `4 * size` of them. A result of
    `size` or more is enciphered again. On average a number is enciphered at most four times.
    """
    half = np.uint64(max(1, -(-(size - 1).bit_length() // 2)))
    digest = hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest()
    keys = np.frombuffer(digest, np.uint64)
    found = numbers.astype(np.uint64)
    beyond = np.ones(len(found), bool)
    while beyond.any():
        found[beyond] = _feistel(found[beyond], half, keys)
        beyond = found >= size
    return found.astype(np.int64)


def _feistel(
    x: NDArray[np.uint64], half: np.uint64, keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    low = (np.uint64(1) << half) - np.uint64(1)
    left, right = x >> half, x & low
    for key in keys:
        left, right = right, left ^ (_splitmix64(right ^ key) & low)
    return (left << half) | right


def _splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The SplitMix64 mixer: each output bit depends on all input bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _turns(seed: int, positions: Indices, weights: tuple[float, ...]) -> tuple[Indices, Indices]:
    """The corpus at each position, and the number of rows of that corpus at earlier positions."""
    counts = np.array(rows_per_period(weights))
    periods, at = np.divmod(positions, counts.sum())
    corpus, turn = np.empty_like(positions), np.empty_like(positions)
    for period in np.unique(periods).tolist():
        chosen = periods == period
        order, rank = _period(seed, period, tuple(counts.tolist()))
        corpus[chosen] = order[at[chosen]]
        turn[chosen] = period * counts[corpus[chosen]] + rank[at[chosen]]
    return corpus, turn


@lru_cache(maxsize=2)
def _period(seed: int, period: int, counts: tuple[int, ...]) -> tuple[Indices, Indices]:
    """The corpus at each position of a period,
    and the count of earlier positions with that corpus.
    """
    keys = row_uniforms([seed], "order of corpora", sum(counts), step=period)[0]
    order = np.repeat(np.arange(len(counts)), counts)[np.argsort(keys.numpy(), kind="stable")]
    rank = np.empty_like(order)
    for number, count in enumerate(counts):
        rank[order == number] = np.arange(count)
    return order, rank


def rows_per_period(weights: tuple[float, ...]) -> tuple[int, ...]:
    """The number of rows of each corpus in a period; at least one each.

    The shares are exact if the weights have integer ratios that sum to at most 4,096. Otherwise
    they are rounded to whole rows.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    whole = [count // math.gcd(*whole) for count in whole]
    if sum(whole) <= _LONGEST:
        return tuple(count * max(1, _PERIOD // sum(whole)) for count in whole)
    return tuple(max(1, round(_LONGEST * weight / sum(exact))) for weight in exact)
