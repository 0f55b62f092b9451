"""Elements of a report: tables, pictures, sections and the format of their cells."""

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
    """A plot with its caption and alternative text."""

    caption: str
    alt: str  # for screen readers
    draw: Callable[[], str]  # returns SVG


@dataclass(frozen=True)
class Section:
    """A titled part of a report."""

    title: str
    note: str
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)  # name of the run, text


def perplexity(point: Point) -> str:
    """A perplexity with its certificate's sign and its standard error."""
    text = figure(point.perplexity, point.perplexity_error, point.freedom)
    return signed(point.certificate, text)


def figure(value: float, error: float, freedom: float = math.inf) -> str:
    """A value with its standard error, or ∞."""
    return with_error(value, error, freedom) if value < math.inf else "∞"


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def setting(value: object) -> str:
    """A setting as a cell; a dash if the run has no such setting."""
    return "–" if value is None else str(value)
