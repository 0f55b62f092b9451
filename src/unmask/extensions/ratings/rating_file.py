"""The file of a human evaluation: its comparisons, and below them one line for each vote."""

import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from unmask.errors import UnmaskError
from unmask.extensions.ratings.comparisons import Comparison
from unmask.files.storage import full_disk, replace

LONGEST_NAME = 60  # characters of a rater's name
Choice = Literal[0, 1, 2]  # tie, left text, right text


@dataclass(frozen=True)
class Vote:
    """One answer of a rater; `winner` is a model, or None for a tie."""

    comparison: str  # its id
    rater: str
    left: str  # the model of the left text
    winner: str | None
    seconds: float  # from the display of the texts to the answer
    time: float  # seconds since 1970


@dataclass(frozen=True)
class Shown:
    """A comparison as a rater sees it, without names of models."""

    id: str
    prompt: str
    left: str
    right: str


class RatingFile:
    """Comparisons and votes in a JSON Lines file.

    A vote is on the disk before `vote` returns, so a kill loses no answered comparison. A line that
    a kill cut off is no vote: its comparison is shown again.

    Args:
        path: the file.
        request: the arguments that made the comparisons.
        comparisons: the comparisons.
        votes: the votes so far.
    """

    def __init__(
        self,
        path: Path,
        request: Mapping[str, Any],
        comparisons: Sequence[Comparison],
        votes: Sequence[Vote] = (),
    ) -> None:
        self.path, self.request = path, request
        self.comparisons = {one.id: one for one in comparisons}
        self.votes = {(vote.rater, vote.comparison): vote for vote in votes}

    @classmethod
    def create(
        cls, path: Path, request: Mapping[str, Any], comparisons: Sequence[Comparison]
    ) -> "RatingFile":
        """Writes a new file without votes.

        Args:
            path: the file, which must not exist.
            request: the arguments that made the comparisons; a later start compares them.
            comparisons: the comparisons.

        Returns:
            The file.
        """
        if path.exists():
            raise UnmaskError(f"{path} exists: name a new file")
        lines = [{"ratings": 1, "request": request}]
        lines += [{"comparison": asdict(one)} for one in comparisons]
        replace(path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        return cls(path, request, comparisons)

    @classmethod
    def read(cls, path: Path) -> "RatingFile":
        """The comparisons and votes of a file.

        Args:
            path: the file.

        Returns:
            The file; an incomplete last line is left out.
        """
        try:
            records = [_record(line) for line in path.read_bytes().split(b"\n")]
            request = records[0]["request"]
            comparisons = [
                Comparison.of(one["comparison"]) for one in records if "comparison" in one
            ]
            votes = [Vote(**one["vote"]) for one in records if "vote" in one]
            file = cls(path, request, comparisons, votes)
        except (FileNotFoundError, IsADirectoryError):
            raise UnmaskError(f"no file {path}: name a file that 'unmask rate' made") from None
        except (KeyError, TypeError, ValueError):
            raise UnmaskError(
                f"{path} holds no ratings: name a file that 'unmask rate' made"
            ) from None
        for vote in votes:
            one = file.comparisons.get(vote.comparison)
            if one is None or vote.winner not in (None, *one.names) or type(vote.rater) is not str:
                raise UnmaskError(
                    f"{path} is damaged: the vote of {vote.rater!r} fits none of its comparisons"
                )
        return file

    def next(self, rater: str) -> Shown | None:
        """The first comparison without a vote of this rater.

        Each rater has a random order of comparisons and of the two texts.
        It is the same after a restart.

        Args:
            rater: the rater's name.

        Returns:
            The comparison, or None if the rater has voted on all of them.
        """
        order = random.Random(f"order {rater}").sample(
            sorted(self.comparisons), len(self.comparisons)
        )
        for id in order:
            if (rater, id) not in self.votes:
                one = self.comparisons[id]
                left, right = reversed(one.texts) if _swapped(rater, id) else one.texts
                return Shown(id, one.prompt, left, right)
        return None

    def progress(self, rater: str) -> tuple[int, int]:
        """The number of votes of a rater.

        Args:
            rater: the rater's name.

        Returns:
            Votes of the rater, and comparisons.
        """
        return sum(name == rater for name, _ in self.votes), len(self.comparisons)

    def vote(self, rater: str, comparison: str, choice: Choice, seconds: float = 0.0) -> None:
        """Appends a vote and flushes it to the disk. A second vote on a comparison changes nothing.

        Args:
            rater: the rater's name.
            comparison: the id of the comparison.
            choice: 1 for the left text, 2 for the right text, 0 for a tie.
            seconds: the time that the answer took.
        """
        if not rater.strip() or len(rater) > LONGEST_NAME or not rater.isprintable():
            raise UnmaskError(
                f"the name of a rater must have 1 to {LONGEST_NAME} printable characters"
            )
        if comparison not in self.comparisons:
            raise UnmaskError(f"no comparison {comparison!r} in {self.path.name}: reload the page")
        if (rater, comparison) in self.votes:
            return
        names = self.comparisons[comparison].names
        left, right = reversed(names) if _swapped(rater, comparison) else names
        winner = {0: None, 1: left, 2: right}[choice]
        vote = Vote(comparison, rater, left, winner, round(seconds, 2), round(time.time(), 2))
        with full_disk(lambda: f"the vote is not in {self.path}; free space and vote again"):
            self._append(json.dumps({"vote": asdict(vote)}).encode())
        self.votes[rater, comparison] = vote

    def _append(self, line: bytes) -> None:
        """Appends a line and waits for the disk;
        an incomplete last line stays as a line of its own.
        """
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND)  # creates no file
        except FileNotFoundError:
            raise UnmaskError(
                f"{self.path} is gone and the vote is not saved: put the file back"
            ) from None
        with open(descriptor, "ab+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            joint = b"" if file.read(1) in (b"\n", b"") else b"\n"
            file.write(joint + line + b"\n")
            os.fsync(file.fileno())


def _record(line: bytes) -> dict[str, Any]:
    """The record of a line; empty if the line is no complete JSON object."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _swapped(rater: str, comparison: str) -> bool:
    """True if this rater sees the second text on the left."""
    return random.Random(f"side {rater} {comparison}").random() < 0.5
