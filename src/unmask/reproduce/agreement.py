"""What of the paper's order is found again, what is not, and what the errors leave open."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import sub
from statistics import stdev

from unmask.likelihood.bound import FEWEST, student_quantile

CONFIDENCE = 0.95  # with which a difference must lie beyond its error to count

TELLING = 0.2  # the widest that this error may be, as a share of a figure, for it to agree

Error = tuple[float, float]  # a standard error, and its degrees of freedom


@dataclass(frozen=True)
class Compared:
    """A figure of ours with its standard error, and the paper's."""

    name: str
    ours: float
    error: float
    paper: float
    by_draw: Sequence[float] = ()  # ours under each draw of the noise, if others share the draws
    freedom: float = math.inf  # degrees of freedom of the error
    seeds: Error = (0.0, math.inf)  # what other seeds would have changed, as far as it is known


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
        width = reach(apart(a, b))
        paper, ours = _sign(a.paper, b.paper, 0.0), _sign(a.ours, b.ours, width)
        claim = f"{a.name} {'<=>'[paper + 1]} {b.name}"
        if ours and paper != ours:
            found.differs.append(f"{claim} (ours {'<=>'[ours + 1]})")
        elif ours or (paper == 0 and _telling(width, min(a.ours, b.ours))):
            found.agrees.append(claim)
        else:  # too close to tell, or too vague to be the same
            found.open.append(f"{claim}{_unknown(a, b, width)}")
    return found


def apart(a: Compared, b: Compared) -> Error:
    """The error of a difference: of its draws, where they are shared; seeds are estimated once for both."""
    seeds = (math.hypot(a.seeds[0], b.seeds[0]), min(a.seeds[1], b.seeds[1]))
    n = len(a.by_draw)
    if n < 2 or n != len(b.by_draw):
        return combined((a.error, a.freedom), (b.error, b.freedom), seeds)
    if not all(map(math.isfinite, [*a.by_draw, *b.by_draw])):
        return math.inf, math.inf
    return combined((stdev(map(sub, a.by_draw, b.by_draw)) / math.sqrt(n), n - 1.0), seeds)


def combined(*parts: Error) -> Error:
    """The error of a sum whose parts err independently (Welch and Satterthwaite)."""
    total = math.hypot(*(error for error, _ in parts))
    if not 0 < total < math.inf:
        return total, math.inf
    doubt = math.fsum((error / total) ** 4 / freedom for error, freedom in parts)
    return total, 1 / doubt if doubt else math.inf


def reach(error: Error) -> float:
    """How far from a figure the true one may lie; an error of few draws reaches further."""
    value, freedom = error
    if not 0 < value < math.inf:
        return 0.0 if value == 0 else math.inf
    return value * student_quantile(freedom, CONFIDENCE)


def ratios(rows: Sequence[Compared], base: Compared) -> Agreement:
    """Whether each figure, as a multiple of the base, is the paper's within the errors."""
    found = Agreement([], [], [])
    for row in rows:
        ours, paper = row.ours / base.ours, row.paper / base.paper
        parts = [(each.error / each.ours, each.freedom) for each in (row, base)]
        error, freedom = combined(*parts)
        width = reach((ours * error, freedom))
        known = min(row.freedom, base.freedom) >= FEWEST
        digits = _digits(ours * error) if known else 2
        doubt = f"{ours * error:.{digits}f}" if known else "?"
        claim = f"{row.name} is {paper:.{digits}f} × {base.name} (ours {ours:.{digits}f} ± {doubt})"
        if not known:
            found.open.append(claim)
        elif _sign(ours, paper, width):
            found.differs.append(claim)
        elif _telling(width, ours):
            found.agrees.append(claim)
        else:
            found.open.append(claim)
    return found


def _digits(error: float) -> int:
    """Decimals that show an error, two at least."""
    return max(2, -math.floor(math.log10(error))) if 0 < error < math.inf else 2


def _sign(a: float, b: float, width: float) -> int:
    """-1, 0 or 1: below, the same within the width, above."""
    if not abs(a - b) > width:  # of two that are infinite nothing is known
        return 0
    return -1 if a < b else 1


def _telling(width: float, figure: float) -> bool:
    """Whether an error is so small that it would not agree with anything."""
    return width < math.inf and width <= TELLING * abs(figure)


def _unknown(a: Compared, b: Compared, width: float) -> str:
    """Why no figure could tell."""
    if width < math.inf:
        return ""
    known = all(map(math.isfinite, (a.ours, a.error, b.ours, b.error)))
    if known and math.inf in (a.seeds[0], b.seeds[0]):
        return " (no second seed tells how much seeds differ)"
    return " (error unknown)"
