"""Tables of a command, and the format of their cells."""

import math
from dataclasses import dataclass

from unmask.likelihood.figure_text import with_error


@dataclass(frozen=True)
class Table:
    """Cells of text under named columns; the first column names the row."""

    caption: str
    columns: list[str]
    rows: list[list[str]]


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
