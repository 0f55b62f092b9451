"""Best-fit bin packing, for rows that hold several documents."""

from bisect import bisect_left, insort
from collections.abc import Sequence


def best_fit(sizes: Sequence[int], room: int) -> list[list[int]]:
    """Best-fit bin packing: the items of each bin.

    Each item, in order, is put into the fullest bin with enough room, or else into a new bin.

    Args:
        sizes: the size of each item.
        room: the size of a bin.

    Returns:
        The indices of the items of each bin.

    Example:
        >>> best_fit([3, 2, 1], room=4)
        [[0, 2], [1]]
    """
    bins: list[list[int]] = []
    left: list[tuple[int, int]] = []  # (room, bin) of bins that are not full, sorted
    for item, size in enumerate(sizes):
        fullest = bisect_left(left, (size, 0))
        if fullest < len(left):
            free, chosen = left.pop(fullest)
        else:
            free, chosen = room, len(bins)
            bins.append([])
        bins[chosen].append(item)
        if free > size:
            insort(left, (free - size, chosen))
    return bins
