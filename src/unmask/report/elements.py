"""What a report is made of, tables, pictures and texts, and how its cells are written."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from unmask.likelihood.figure_text import signed, with_error
from unmask.runs.measurements import Point


@dataclass(frozen=True)
class Table:
    """Cells of text under named columns; the first column names the row."""

    caption: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Picture:
    """What it shows, in words for those who cannot see it, and how it is drawn."""

    caption: str
    alt: str
    draw: Callable[[], str]


@dataclass(frozen=True)
class Section:
    title: str
    note: str
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)  # whose, and what


def perplexity(point: Point) -> str:
    told = figure(point.perplexity, point.perplexity_error, point.freedom)
    return signed(point.certificate, told)


def figure(value: float, error: float, freedom: float = math.inf) -> str:
    """A value with its error, or the sign of one that is larger than any number."""
    return with_error(value, error, freedom) if value < math.inf else "∞"


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def setting(value: object) -> str:
    """A setting as a cell; a run that has no such setting has a dash."""
    return "–" if value is None else str(value)
