"""The training order: the row at each position is a function of (seed, position).

The order of one corpus of at most 2²⁴ rows is an argsort of random keys. Larger corpora and mixtures
permute row numbers by a cipher, which needs no memory.
"""

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from unmask.randomness import row_uniforms

Places = NDArray[np.int64]

_LISTED = 2**24  # most rows of a corpus whose order is an argsort
_PERIOD = 1024  # about the rows of a period, in which each corpus has exactly its share
_LONGEST = 4096  # most rows of a period, unless there are more corpora
_ROUNDS = 8  # of the Feistel cipher


@dataclass(frozen=True)
class Shares:
    """The number of rows and the weight of each corpus."""

    sizes: tuple[int, ...]
    weights: tuple[float, ...] = (1.0,)


def drawn(seed: int, places: Places, shares: Shares) -> Places:
    """The row indices at some positions of the training order. Corpora are concatenated."""
    if len(shares.sizes) == 1:
        return _epochs(seed, "order of rows", places, shares.sizes[0], _LISTED)
    corpus, turn = _turns(seed, places, shares.weights)
    rows = np.empty_like(places)
    first = 0
    for number, size in enumerate(shares.sizes):
        here = corpus == number
        rows[here] = first + _epochs(seed, f"order of corpus {number}", turn[here], size, 0)
        first += size
    return rows


def _epochs(seed: int, name: str, places: Places, size: int, listed: int) -> Places:
    """Row indices of one corpus. Each epoch has every row once, in its own order."""
    epochs, places = np.divmod(places, size)
    rows = np.empty_like(places)
    for epoch in np.unique(epochs).tolist():
        here = epochs == epoch
        if size <= listed:
            rows[here] = _order(seed, name, epoch, size)[places[here]]
        else:
            rows[here] = enciphered(places[here], size, f"{seed}/{name}/{epoch}")
    return rows


@lru_cache(maxsize=2)  # a batch may span two epochs
def _order(seed: int, name: str, epoch: int, size: int) -> Places:
    keys = row_uniforms([seed], name, size, step=epoch)[0]
    return np.argsort(keys.numpy(), kind="stable")


def enciphered(numbers: Places, size: int, key: str) -> Places:
    """A permutation of 0 … size - 1, evaluated at `numbers`: a cycle-walking Feistel cipher.

    The cipher permutes the numbers of 2b bits. A result of `size` or more is enciphered again, at
    most four times on average.
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
        left, right = right, left ^ (_mixed(right ^ key) & low)
    return (left << half) | right


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The SplitMix64 mixer: each output bit depends on all input bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _turns(seed: int, places: Places, weights: tuple[float, ...]) -> tuple[Places, Places]:
    """The corpus at each position, and the number of its rows at earlier positions."""
    counts = np.array(rows_a_period(weights))
    periods, at = np.divmod(places, counts.sum())
    corpus, turn = np.empty_like(places), np.empty_like(places)
    for period in np.unique(periods).tolist():
        here = periods == period
        order, rank = _period(seed, period, tuple(counts.tolist()))
        corpus[here] = order[at[here]]
        turn[here] = period * counts[corpus[here]] + rank[at[here]]
    return corpus, turn


@lru_cache(maxsize=2)
def _period(seed: int, period: int, counts: tuple[int, ...]) -> tuple[Places, Places]:
    """The shuffled corpora of a period, and the rank of each position within its corpus."""
    keys = row_uniforms([seed], "order of corpora", sum(counts), step=period)[0]
    order = np.repeat(np.arange(len(counts)), counts)[np.argsort(keys.numpy(), kind="stable")]
    rank = np.empty_like(order)
    for number, count in enumerate(counts):
        rank[order == number] = np.arange(count)
    return order, rank


def rows_a_period(weights: tuple[float, ...]) -> tuple[int, ...]:
    """The number of rows of each corpus in a period, at least one.

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
