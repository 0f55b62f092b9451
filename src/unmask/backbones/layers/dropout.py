"""Dropout as a pure function of (row key, site, position).

Eager, compiled and recomputed forward passes get the same mask.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.randomness import Keys as Keys
from unmask.randomness import RowStream, keyed_bits, site_keys, stream_keys
from unmask.runtime.device import to_device


def dropout(
    x: Float[Tensor, "*tokens width"],
    p: float,
    keys: Keys | None,
    site: int,
    at: Int[Tensor, "tokens"] | None = None,
    length: int = 0,
) -> Float[Tensor, "*tokens width"]:
    """Zeroes each element with probability p and scales the others by 1 / (1 - p).

    Args:
        x: Features of all rows, or of the tokens `at`. A token has the same mask in both cases.
        p: Probability of a zero.
        keys: Keys of the rows; None for no dropout.
        site: Number of the dropout call in the network. Each site has its own mask.
        at: Indices of the tokens of `x`, into the flattened batch.
        length: Length of a row; read with `at` only.

    Returns:
        The features after dropout.
    """
    if keys is None or not p:
        return x
    first, second = site_keys(keys, site)
    channel = torch.arange(x.shape[-1], dtype=torch.int32, device=x.device)
    if at is None:
        first, second = first[:, None, None], second[:, None, None]
        column = torch.arange(x.shape[1], dtype=torch.int32, device=x.device)
    else:
        first, second = (key[at // length][:, None] for key in (first, second))
        column = (at % length).int()
    bits = keyed_bits(column[:, None] * x.shape[-1] + channel, first, second)
    return torch.where(bits >= round(p * 2**32) - 2**31, x * (1 / (1 - p)), 0.0)


def dropout_keys(stream: RowStream, device: torch.device) -> Keys:
    """Dropout keys of some rows, a function of (seed, step, row)."""
    return to_device(stream_keys(stream, "dropout"), device)


def draw_keys(rows: int, device: torch.device) -> Keys:
    """Random dropout keys, from torch's global generator."""
    return torch.randint(-(2**31), 2**31, (rows, 2), dtype=torch.int32, device=device)
