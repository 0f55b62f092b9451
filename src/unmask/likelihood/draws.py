"""Blocks of rows, and the random numbers of their draws."""

import math

from jaxtyping import Float64
from torch import Tensor

from unmask.randomness import RowStream, child_seed

BLOCK = 32  # rows that share strata, counted from the start of the corpus


def draws_together(draws: int, rows: int) -> int:
    """Number of successive draws of a block that share the strata of their noise.

    A full block has a stratum for each row. A block of few rows has few strata, so its draws share
    theirs: one text is then measured at noise levels from end to end. The standard error needs
    independent groups of draws. So there are at least eight groups,
    and a group has at most as many draws as the square root of all.

    Args:
        draws: Draws of each row.
        rows: Rows of the block.

    Returns:
        A divisor of `draws`.

    Example:
        >>> draws_together(64, 1), draws_together(64, 16), draws_together(64, 32)
        (8, 2, 1)
    """
    most = min(BLOCK // rows, draws // 8, math.isqrt(draws))
    return max((size for size in range(1, most + 1) if draws % size == 0), default=1)


def independent_means(
    values: Float64[Tensor, "draws *shape"], rows: int
) -> Float64[Tensor, "groups *shape"]:
    """Means over the draws that share strata; a standard error needs such independent values.

    Args:
        values: Values of each draw.
        rows: Rows that the values belong to; their last block may be short.

    Returns:
        The means of successive groups of draws.

    Example:
        >>> import torch
        >>> independent_means(torch.arange(16.0), rows=1)
        tensor([ 0.5000,  2.5000,  4.5000,  6.5000,  8.5000, 10.5000, 12.5000, 14.5000])
    """
    together = draws_together(len(values), rows % BLOCK or BLOCK)
    return values.unflatten(0, (-1, together)).mean(1)


def draw_stream(seed: int, draw: int, draws: int, block: range, part: range) -> RowStream:
    """The random numbers of some rows of a block under one draw.

    Draws that share strata are parts of one global batch. It holds the block once for each of them.

    Args:
        seed: Seed of the measurement.
        draw: Number of the draw, from 0.
        draws: Draws of each row.
        block: Rows of the block, as numbers of the corpus.
        part: The rows that are wanted.

    Returns:
        The stream of these rows.

    Example:
        >>> draw_stream(0, 1, 16, range(32, 34), range(33, 34))
        RowStream(seed=0, step=32, rows=range(3, 4), total=4)
    """
    together = draws_together(draws, len(block))
    group, place = divmod(draw, together)
    first = place * len(block) - block.start
    rows = range(first + part.start, first + part.stop)
    return RowStream(child_seed(seed, group), block.start, rows, together * len(block))
