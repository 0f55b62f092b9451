"""Random numbers as a pure function of (seed, step, row), without a generator state to save."""

import hashlib
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int32, Int64
from torch import Tensor

from unmask.errors import UnmaskError

_BLOCK = 4  # uniforms per Philox counter value
# odd multipliers of 32-bit hash functions, and the golden ratio, as signed numbers
_A, _B, _GOLDEN = 0x7FEB352D, 0x846CA68B - 2**32, 0x9E3779B9 - 2**32
Keys = Int32[Tensor, "rows 2"]


def _key(seed: int, name: str) -> int:
    """The 128-bit Philox key of a named stream."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def _block(seed: int, name: str, step: int, first_row: int, rows: int, width: int) -> np.ndarray:
    blocks = -(-width // _BLOCK)
    counter = [first_row * blocks, step, 0, 0]
    philox = np.random.Philox(key=_key(seed, name), counter=counter)
    uniforms = np.random.Generator(philox).random(rows * blocks * _BLOCK)
    return uniforms.reshape(rows, blocks * _BLOCK)[:, :width]


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Seeds torch's random numbers on the CPU, for initial weights,
    and restores their state afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@dataclass(frozen=True)
class RowStream:
    """Uniforms for the rows `rows` of a global batch of `total` rows.

    A row gets the same numbers on any process and with any number of processes.
    """

    seed: int
    step: int
    rows: range
    total: int

    def uniform(self, name: str, width: int) -> Float64[Tensor, "rows width"]:
        """Numbers in [0, 1) with 53 random bits; each name has its own numbers."""
        block = _block(self.seed, name, self.step, self.rows.start, len(self.rows), width)
        return torch.from_numpy(block)

    def strata(self) -> Int64[Tensor, "rows"]:
        """The entries of this stream's rows in a random permutation of 0 … total - 1."""
        uniforms = _block(self.seed, "strata", self.step, 0, self.total, 1)[:, 0]
        ranks = uniforms.argsort().argsort()[self.rows.start : self.rows.stop]
        return torch.from_numpy(ranks)


def row_uniforms(
    seeds: Sequence[int], name: str, width: int, step: int = 0
) -> Float64[Tensor, "rows width"]:
    """Uniforms in [0, 1); each row depends on its own seed only."""
    philox = np.random.Philox(0)
    generator, state = np.random.Generator(philox), philox.state
    rows = np.empty((len(seeds), -(-width // _BLOCK) * _BLOCK))
    for row, seed in zip(rows, seeds, strict=True):
        key = _key(seed, name)
        state["state"]["key"][:] = key & (2**64 - 1), key >> 64
        state["state"]["counter"][:] = 0, step, 0, 0
        state["buffer_pos"] = _BLOCK  # drop the buffered numbers of the row before
        philox.state = state  # a new generator per row would read system entropy each time
        generator.random(out=row)
    return torch.from_numpy(np.ascontiguousarray(rows[:, :width]))


def child_seed(seed: int, index: int, kind: str = "child") -> int:
    """The seed of the `index`-th child of `seed`, different for each kind;
    child 0 is `seed` itself.
    """
    return seed if index == 0 else _key(seed, f"{kind} {index}") >> 66


def row_seeds(seed: int | Sequence[int], rows: int) -> list[int]:
    """One seed per row: the given seeds, or children of one seed."""
    try:
        if not isinstance(seed, Sequence):
            return [child_seed(operator.index(seed), index) for index in range(rows)]
        seeds = [operator.index(one) for one in seed]
    except TypeError:
        raise UnmaskError(f"seed must be a whole number or a list of them, not {seed!r}") from None
    if len(seed) != rows:
        raise UnmaskError(f"{len(seed)} seeds for {rows} rows: give one seed, or one for each row")
    return seeds


def stream_keys(stream: RowStream, name: str) -> Keys:
    """Keys of the rows of a stream, for random numbers that a device computes itself."""
    return _as_keys(stream.uniform(name, 2))


def row_keys(seeds: Sequence[int], name: str) -> Keys:
    """Keys of rows, each from its own seed."""
    return _as_keys(row_uniforms(seeds, name, 2))


def keyed_normals(
    keys: Keys,
    site: int,
    length: int,
    width: int,
    dtype: torch.dtype,
    first_position: Int64[Tensor, "rows"] | None = None,
) -> Float[Tensor, "rows length width"]:
    """Normal numbers as a function of (row key, site, position), by the Box-Muller transform.

    The numbers of a position do not depend on the length. They are computed on the keys' device.
    The positions of a row begin at `first_position`, or at 0.
    """
    first, second = (
        keyed_uniforms(keys, 2 * site + part, length, width, dtype, first_position)
        for part in (0, 1)
    )
    return (-2 * first.log()).sqrt() * torch.cos(2 * torch.pi * second)


def keyed_uniforms(
    keys: Keys,
    site: int,
    length: int,
    width: int,
    dtype: torch.dtype,
    first_position: Int64[Tensor, "rows"] | None = None,
) -> Float[Tensor, "rows length width"]:
    """Numbers in (0, 1] as a function of (row key, site, position); float32 rounds some to 1."""
    bits = keyed_integers(keys, site, length, width, first_position).to(dtype)
    # float32 rounds 65 of the 2^32 values of `bits` to -2^31; without the limit, log(0) is infinite
    return (bits + (2**31 + 0.5)).clamp(min=0.5) / 2**32


def keyed_integers(
    keys: Keys,
    site: int,
    length: int,
    width: int,
    first_position: Int64[Tensor, "rows"] | None = None,
) -> Int32[Tensor, "rows length width"]:
    """32 random bits as a function of (row key, site, position)."""
    element = torch.arange(length * width, dtype=torch.int32, device=keys.device)
    if first_position is not None:
        element = element + (width * first_position.int())[:, None]
    bits = keyed_bits(element, *(key[:, None] for key in site_keys(keys, site)))
    return bits.view(len(keys), length, width)


def site_keys(keys: Keys, site: int) -> tuple[Int32[Tensor, "rows"], Int32[Tensor, "rows"]]:
    """Two keys of each row for one use of random numbers."""
    first = _scramble(keys[:, 0] + ((site * _GOLDEN + 2**31) % 2**32 - 2**31))
    return first, _scramble(keys[:, 1] ^ first)


def keyed_bits(element: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """32 random bits per element: a hash of two rounds, each with its own key."""
    bits = (element ^ first) * _A
    bits = ((bits ^ _shifted(bits, 15)) ^ second) * _B
    return (bits ^ _shifted(bits, 16)) * _A


def _as_keys(uniforms: Float64[Tensor, "rows two"]) -> Keys:
    return ((uniforms * 2**32).long() - 2**31).int()


def _scramble(x: Int32[Tensor, "rows"]) -> Int32[Tensor, "rows"]:
    x = (x ^ _shifted(x, 16)) * _A
    x = (x ^ _shifted(x, 15)) * _B
    return x ^ _shifted(x, 16)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; torch's own shift copies the sign bit."""
    return (x >> bits) & (2 ** (32 - bits) - 1)
