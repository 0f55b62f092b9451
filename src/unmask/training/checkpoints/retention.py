"""Which checkpoints stay: the last, those with the best bounds, and every n-th."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """What retention needs to know of a checkpoint."""

    nats: float | None = None  # the last validation before it
    good: bool = False  # taken at its time, all well: where a run may go back to


@dataclass(frozen=True)
class Retention:
    """How many of each kind are kept; a checkpoint may be of several kinds."""

    last: int
    best: int = 0
    every: int = 0  # steps; 0 = off

    def keeps(self, entries: Mapping[int, Entry]) -> set[int]:
        """The steps that stay, out of all that are there."""
        good = [step for step in sorted(entries) if entries[step].good]
        bounds = {step: nats for step in good if (nats := entries[step].nats) is not None}
        best = sorted(bounds, key=lambda step: (bounds[step], step))
        nth = [step for step in good if self.every and step % self.every == 0]
        return {*sorted(entries)[-self.last :], *good[-1:], *best[: self.best], *nth}
