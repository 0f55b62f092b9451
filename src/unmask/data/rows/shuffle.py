"""Which row stands at which place of training: a function of (seed, place), of one corpus or of several.

The order of one corpus is a sorted list of random keys, as long as it has at most 2²⁴ rows: beyond,
and in mixtures, it is a cipher of the row's number, which needs no memory however many rows there are.
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

_LISTED = 2**24  # rows beyond which an order is not listed
_PERIOD = 1024  # rows, about, in which corpora have exactly their shares,
_LONGEST = 4096  # and at most, unless there are more corpora
_ROUNDS = 8


@dataclass(frozen=True)
class Shares:
    """The rows of each corpus, and the weight with which it is drawn."""

    sizes: tuple[int, ...]
    weights: tuple[float, ...] = (1.0,)


def drawn(seed: int, places: Places, shares: Shares) -> Places:
    """The rows at places 0, 1, … of training; corpora are numbered through, one behind the other."""
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
    """Rows of one corpus: each epoch has every row once, in an order of its own."""
    epochs, places = np.divmod(places, size)
    rows = np.empty_like(places)
    for epoch in np.unique(epochs).tolist():
        here = epochs == epoch
        if size <= listed:
            rows[here] = _order(seed, name, epoch, size)[places[here]]
        else:
            rows[here] = enciphered(places[here], size, f"{seed}/{name}/{epoch}")
    return rows


@lru_cache(maxsize=2)  # a batch may lie across the border of two epochs
def _order(seed: int, name: str, epoch: int, size: int) -> Places:
    keys = row_uniforms([seed], name, size, step=epoch)[0]
    return np.argsort(keys.numpy(), kind="stable")


def enciphered(numbers: Places, size: int, key: str) -> Places:
    """A permutation of 0 … size - 1, one number at a time: a Feistel cipher that walks its cycles.

    The cipher permutes the numbers of 2b bits; one that it sends beyond `size` is enciphered again,
    at most four times on average.
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
    """SplitMix64: each bit of the result depends on all of the number's."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _turns(seed: int, places: Places, weights: tuple[float, ...]) -> tuple[Places, Places]:
    """Which corpus each place belongs to, and how many rows of it came before."""
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
    """The corpora of a period, shuffled, and each place's number among those of its corpus."""
    keys = row_uniforms([seed], "order of corpora", sum(counts), step=period)[0]
    order = np.repeat(np.arange(len(counts)), counts)[np.argsort(keys.numpy(), kind="stable")]
    rank = np.empty_like(order)
    for number, count in enumerate(counts):
        rank[order == number] = np.arange(count)
    return order, rank


def rows_a_period(weights: tuple[float, ...]) -> tuple[int, ...]:
    """How many of each period's rows are of each corpus: exact if the weights are whole ratios of a
    few thousand, else to the nearest row, and at least one."""
    exact = [Fraction(str(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    whole = [count // math.gcd(*whole) for count in whole]
    if sum(whole) <= _LONGEST:
        return tuple(count * max(1, _PERIOD // sum(whole)) for count in whole)
    return tuple(max(1, round(_LONGEST * weight / sum(exact))) for weight in exact)
