"""What the network is asked: some tokens given those before them, wherever and beside whatever it is asked."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unmask.randomness import child_seed


@dataclass(frozen=True)
class Question:
    """The first `given` of a row's tokens are seen and cost nothing; how likely are the others?"""

    ids: tuple[int, ...]
    given: int

    @property
    def targets(self) -> int:
        """How many tokens are asked for."""
        return len(self.ids) - self.given

    def seed(self, seed: int) -> int:
        """The seed of its randomness: what is asked decides it, not when or in which batch."""
        content = hashlib.blake2b(repr((self.ids, self.given)).encode(), digest_size=8)
        return child_seed(seed, int.from_bytes(content.digest(), "little"), "question")


def windows(first: Sequence[int], ids: Sequence[int], start: int, room: int) -> Iterator[Question]:
    """The tokens from `start` on, each asked for once, in rows that hold `room` tokens behind `first`.

    A row that is not filled by what it asks for holds what stands before it, as far as it goes.
    """
    while start < len(ids):
        stop = min(start + room, len(ids))
        begin = max(stop - room, 0)
        yield Question((*first, *ids[begin:stop]), len(first) + start - begin)
        start = stop


def shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))
