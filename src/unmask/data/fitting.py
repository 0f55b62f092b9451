"""Bin packing: which documents share a row."""

from bisect import bisect_left, insort
from collections.abc import Sequence


def best_fit(sizes: Sequence[int], room: int) -> list[list[int]]:
    """Each item, in order, into the fullest bin that it fits into, or a new one: the items of each bin."""
    bins: list[list[int]] = []
    left: list[tuple[int, int]] = []  # room of the bins that have any, smallest first
    for item, size in enumerate(sizes):
        place = bisect_left(left, (size, 0))
        if place < len(left):
            free, chosen = left.pop(place)
        else:
            free, chosen = room, len(bins)
            bins.append([])
        bins[chosen].append(item)
        if free > size:
            insort(left, (free - size, chosen))
    return bins
