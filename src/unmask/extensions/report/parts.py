"""Parts of a report: pictures, sections and perplexities."""

from collections.abc import Callable
from dataclasses import dataclass, field

from unmask.cli.output.elements import Table, figure
from unmask.extensions.report.measurements import Point
from unmask.likelihood.figure_text import signed


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
