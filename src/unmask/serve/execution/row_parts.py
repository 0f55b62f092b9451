"""Parts of a network call: a call of many rows is computed in several passes.

A pass cannot be interrupted for long and delays the calls of other jobs, so its size is limited.
Rows do not depend on each other, so the parts have the same results as the whole call.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from unmask.backbones.layers.attention import Call


class Part(NamedTuple):
    """Some rows of a call, and the places of their results in those of the whole call."""

    call: Call
    places: Tensor | None  # None: the results follow each other


def row_parts(call: Call, most: int) -> Iterator[Part]:
    """Parts of at most `most` tokens each, or of one row; a call with a cache is one part.

    Args:
        call: A network call.
        most: The number of tokens of a part.

    Returns:
        The parts in the order of their rows. Rows without requested tokens are left out.
    """
    rows, length = call.inputs.shape
    step = max(1, most // length)
    nothing = call.at is not None and len(call.at) == 0
    if rows <= step or call.state is not None or nothing:
        yield Part(call, None)
        return
    for first in range(0, rows, step):
        some = slice(first, first + step)
        condition = call.condition
        if condition is not None and len(condition) == rows:
            condition = condition[some]
        part = call._replace(inputs=call.inputs[some], condition=condition)
        if call.at is None:
            yield Part(part, None)
            continue
        places = ((call.at >= first * length) & (call.at < (first + step) * length)).nonzero()[:, 0]
        if len(places):
            yield Part(part._replace(at=call.at[places] - first * length), places)


def joined(parts: list[Part], results: list[Tensor]) -> Tensor:
    """The results of the whole call.

    Args:
        parts: All parts of the call.
        results: The results of each part.

    Returns:
        The results in the order of the rows, or of the requested tokens.
    """
    if len(parts) == 1:
        return results[0]
    whole = torch.cat(results)
    places = [part.places for part in parts if part.places is not None]
    if not places:
        return whole
    return torch.empty_like(whole).index_copy_(0, torch.cat(places), whole)
