"""Which checkpoints stay: the last, those with the best bounds, and every n-th."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Retention:
    """How many of each kind are kept; a checkpoint may be of several kinds."""

    last: int
    best: int = 0
    every: int = 0  # steps; 0 = off

    def keeps(self, bounds: Mapping[int, float | None]) -> set[int]:
        """The steps that stay, out of all that are there, each with its bound if it has one."""
        steps = sorted(bounds)
        measured = {step: bound for step, bound in bounds.items() if bound is not None}
        best = sorted(measured, key=lambda step: (measured[step], step))
        nth = [step for step in steps if self.every and step % self.every == 0]
        return {*steps[-self.last :], *best[: self.best], *nth}
