"""Comparison of our figures with the paper's: claims that agree, differ or stay open."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import sub
from statistics import stdev

from unmask.likelihood.bound import FEWEST, student_quantile

CONFIDENCE = 0.95  # level at which a difference counts

NARROW = 0.2  # largest half-width, as a share of the figure, at which two figures may be equal

Error = tuple[float, float]  # a standard error, and its degrees of freedom


@dataclass(frozen=True)
class Compared:
    """Our figure with its standard error, and the paper's figure."""

    name: str
    ours: float
    error: float
    paper: float
    by_draw: Sequence[float] = ()  # our figure of each group of draws, if figures share the draws
    freedom: float = math.inf  # degrees of freedom of the error
    seeds: Error = (0.0, math.inf)  # deviation between training seeds; infinite if unknown


@dataclass(frozen=True)
class Agreement:
    """Claims of the paper, sorted by their agreement with our figures."""

    agrees: list[str]
    differs: list[str]
    open: list[str]

    def __str__(self) -> str:
        parts = [("agrees", self.agrees), ("differs", self.differs), ("open", self.open)]
        return "; ".join(f"{name}: {', '.join(found)}" for name, found in parts if found)


def order(pairs: Iterable[tuple[Compared, Compared]]) -> Agreement:
    """Compares the order of each pair of figures, ours and the paper's."""
    found = Agreement([], [], [])
    for a, b in pairs:
        width = half_width(difference_error(a, b))
        paper, ours = _sign(a.paper, b.paper, 0.0), _sign(a.ours, b.ours, width)
        claim = f"{a.name} {'<=>'[paper + 1]} {b.name}"
        if ours and paper != ours:
            found.differs.append(f"{claim} (ours {'<=>'[ours + 1]})")
        elif ours or (paper == 0 and _narrow(width, min(a.ours, b.ours))):
            found.agrees.append(claim)
        else:  # the difference is within the error, or the error is too large for equality
            found.open.append(f"{claim}{_unknown(a, b, width)}")
    return found


def difference_error(a: Compared, b: Compared) -> Error:
    """The standard error of a difference, from paired draws where the figures share them.

    Both figures share one estimate of the deviation between seeds,
    so its degrees of freedom count once.
    """
    seeds = (math.hypot(a.seeds[0], b.seeds[0]), min(a.seeds[1], b.seeds[1]))
    n = len(a.by_draw)
    if n < 2 or n != len(b.by_draw):
        return combined((a.error, a.freedom), (b.error, b.freedom), seeds)
    if not all(map(math.isfinite, [*a.by_draw, *b.by_draw])):
        return math.inf, math.inf
    return combined((stdev(map(sub, a.by_draw, b.by_draw)) / math.sqrt(n), n - 1.0), seeds)


def combined(*parts: Error) -> Error:
    """The standard error of a sum of independent parts (Welch and Satterthwaite)."""
    total = math.hypot(*(error for error, _ in parts))
    if not 0 < total < math.inf:
        return total, math.inf
    inverse = math.fsum((error / total) ** 4 / freedom for error, freedom in parts)
    return total, 1 / inverse if inverse else math.inf


def half_width(error: Error) -> float:
    """Half the width of the 95% confidence interval; fewer degrees of freedom make it wider."""
    value, freedom = error
    if not 0 < value < math.inf:
        return 0.0 if value == 0 else math.inf
    return value * student_quantile(freedom, CONFIDENCE)


def ratios(rows: Sequence[Compared], base: Compared) -> Agreement:
    """Compares the ratio of each figure to the base, ours and the paper's."""
    found = Agreement([], [], [])
    for row in rows:
        ours, paper = row.ours / base.ours, row.paper / base.paper
        parts = [(each.error / each.ours, each.freedom) for each in (row, base)]
        error, freedom = combined(*parts)
        width = half_width((ours * error, freedom))
        known = min(row.freedom, base.freedom) >= FEWEST
        digits = _digits(ours * error) if known else 2
        shown = f"{ours * error:.{digits}f}" if known else "?"
        claim = f"{row.name} is {paper:.{digits}f} × {base.name} (ours {ours:.{digits}f} ± {shown})"
        if not known:
            found.open.append(claim)
        elif _sign(ours, paper, width):
            found.differs.append(claim)
        elif _narrow(width, ours):
            found.agrees.append(claim)
        else:
            found.open.append(claim)
    return found


def _digits(error: float) -> int:
    """The decimals at which an error is visible, at least two."""
    return max(2, -math.floor(math.log10(error))) if 0 < error < math.inf else 2


def _sign(a: float, b: float, width: float) -> int:
    """-1 if a is below b, 0 if they differ by at most `width`, 1 if a is above b."""
    if not abs(a - b) > width:  # NaN, the difference of two infinities, counts as equal
        return 0
    return -1 if a < b else 1


def _narrow(width: float, figure: float) -> bool:
    """True if an interval of this half-width is narrow enough to call two figures equal."""
    return width < math.inf and width <= NARROW * abs(figure)


def _unknown(a: Compared, b: Compared, width: float) -> str:
    """The reason for an infinite interval, or an empty text."""
    if width < math.inf:
        return ""
    known = all(map(math.isfinite, (a.ours, a.error, b.ours, b.error)))
    if known and math.inf in (a.seeds[0], b.seeds[0]):
        return " (deviation between seeds unknown: no row has two seeds)"
    return " (error unknown)"
