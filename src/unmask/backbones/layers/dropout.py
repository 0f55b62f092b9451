"""Dropout as a pure function of (row key, site, position).

Eager, compiled and recomputed forward passes get the same mask.
"""

import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor

from unmask.randomness import RowStream
from unmask.runtime.device import to_device

Keys = Int32[Tensor, "rows 2"]

# odd multipliers of 32-bit hash functions, and the golden ratio, as signed numbers
_A, _B, _GOLDEN = 0x7FEB352D, 0x846CA68B - 2**32, 0x9E3779B9 - 2**32


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
    first, second = _row_keys(keys, site)
    channel = torch.arange(x.shape[-1], dtype=torch.int32, device=x.device)
    if at is None:
        first, second = first[:, None, None], second[:, None, None]
        column = torch.arange(x.shape[1], dtype=torch.int32, device=x.device)
    else:
        first, second = (key[at // length][:, None] for key in (first, second))
        column = (at % length).int()
    bits = _bits(column[:, None] * x.shape[-1] + channel, first, second)
    return torch.where(bits >= round(p * 2**32) - 2**31, x * (1 / (1 - p)), 0.0)


def dropout_keys(stream: RowStream, device: torch.device) -> Keys:
    """Dropout keys of some rows, a function of (seed, step, row)."""
    whole = (stream.uniform("dropout", 2) * 2**32).long() - 2**31
    return to_device(whole, device, torch.int32)


def draw_keys(rows: int, device: torch.device) -> Keys:
    """Random dropout keys, from torch's global generator."""
    return torch.randint(-(2**31), 2**31, (rows, 2), dtype=torch.int32, device=device)


def _row_keys(keys: Keys, site: int) -> tuple[Int32[Tensor, "rows"], Int32[Tensor, "rows"]]:
    first = _scramble(keys[:, 0] + ((site * _GOLDEN + 2**31) % 2**32 - 2**31))
    return first, _scramble(keys[:, 1] ^ first)


def _bits(element: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """32 random bits per element: a hash of two rounds, each with its own key."""
    bits = (element ^ first) * _A
    bits = ((bits ^ _shifted(bits, 15)) ^ second) * _B
    return (bits ^ _shifted(bits, 16)) * _A


def _scramble(x: Int32[Tensor, "rows"]) -> Int32[Tensor, "rows"]:
    x = (x ^ _shifted(x, 16)) * _A
    x = (x ^ _shifted(x, 15)) * _B
    return x ^ _shifted(x, 16)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; torch's own shift copies the sign bit."""
    return (x >> bits) & (2 ** (32 - bits) - 1)
