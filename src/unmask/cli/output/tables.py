"""Tables in the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from unmask.cli.output.elements import Table as PageTable

_UNITS = ("B", "kB", "MB", "GB", "TB")


def show_tables(tables: "Sequence[PageTable]") -> None:
    """Prints tables. In a narrow terminal lines wrap, and numbers are never cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn
    from rich.text import Text

    for table in tables:
        drawn = Drawn(
            title=Text(table.caption), title_justify="left", box=SIMPLE_HEAD, pad_edge=False
        )
        for number, name in enumerate(table.columns):
            drawn.add_column(Text(name), justify="right" if number else "left", no_wrap=True)
        for row in table.rows:
            drawn.add_row(*map(Text, row))
        print_whole(drawn)


def say(line: str) -> None:
    """Prints a line to standard error."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(line, markup=False)


def fact_table(title: str) -> "Table":
    """An empty table of names and values without a header; long values wrap."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    return table


def print_whole(table: "Table", spare: int = 0) -> None:
    """Prints a table at its natural width, less `spare` columns of text that may wrap.

    A narrow terminal wraps its lines, so numbers are never cut.
    """
    from rich.console import Console

    console = Console(highlight=False)
    natural = console.measure(table, options=console.options.update(max_width=1000)).maximum
    Console(highlight=False, width=max(console.width, natural - spare)).print(table)


def size_text(count: float) -> str:
    """A number of bytes as text, with a decimal unit."""
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in ("B", "kB") else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"
