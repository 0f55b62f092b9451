"""What of the paper's order is found again, what is not, and what the errors leave open."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import sub
from statistics import stdev

CONFIDENT = 2.0  # standard errors that a difference must have to count

TELLING = 0.1  # the largest error of a ratio, as a share of it, that can agree


@dataclass(frozen=True)
class Compared:
    """A figure of ours with its standard error, and the paper's."""

    name: str
    ours: float
    error: float
    paper: float
    by_draw: Sequence[float] = ()  # ours under each draw of the noise, if others share the draws


@dataclass(frozen=True)
class Agreement:
    """Claims of the paper, sorted by what our figures say of them."""

    agrees: list[str]
    differs: list[str]
    open: list[str]

    def __str__(self) -> str:
        parts = [("agrees", self.agrees), ("differs", self.differs), ("open", self.open)]
        return "; ".join(f"{name}: {', '.join(found)}" for name, found in parts if found)


def order(pairs: Iterable[tuple[Compared, Compared]]) -> Agreement:
    """Whether the first of each pair is below the second in ours as in the paper."""
    found = Agreement([], [], [])
    for a, b in pairs:
        paper, ours = (
            _sign(a.paper, b.paper, 0.0),
            _sign(a.ours, b.ours, apart(a, b)),
        )
        claim = f"{a.name} {'<=>'[paper + 1]} {b.name}"
        if paper == ours:
            found.agrees.append(claim)
        elif ours == 0:  # too close to tell
            found.open.append(claim)
        else:
            found.differs.append(f"{claim} (ours {'<=>'[ours + 1]})")
    return found


def apart(a: Compared, b: Compared) -> float:
    """The standard error of a difference: of its draws, where they are shared."""
    n = len(a.by_draw)
    if n < 2 or n != len(b.by_draw):
        return math.hypot(a.error, b.error)
    return stdev(map(sub, a.by_draw, b.by_draw)) / math.sqrt(n)


def ratios(rows: Sequence[Compared], base: Compared) -> Agreement:
    """Whether each figure, as a multiple of the base, is the paper's within the errors."""
    found = Agreement([], [], [])
    for row in rows:
        ours, paper = row.ours / base.ours, row.paper / base.paper
        error = ours * math.hypot(row.error / row.ours, base.error / base.ours)
        claim = f"{row.name} is {paper:.2f} × {base.name} (ours {ours:.2f} ± {error:.2f})"
        if _sign(ours, paper, error):
            found.differs.append(claim)
        elif error > TELLING * ours:  # so wide an error would agree with anything
            found.open.append(claim)
        else:
            found.agrees.append(claim)
    return found


def _sign(a: float, b: float, error: float) -> int:
    """-1, 0 or 1: below, the same within the error, above."""
    if abs(a - b) <= CONFIDENT * error:
        return 0
    return -1 if a < b else 1
