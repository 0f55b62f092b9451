"""Tables in the terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_whole(table: "Table", spare: int = 0) -> None:
    """Numbers are never cut: in a narrow terminal lines go on below, but for `spare` columns of text."""
    from rich.console import Console

    console = Console(highlight=False)
    natural = console.measure(table, options=console.options.update(max_width=1000)).maximum
    Console(highlight=False, width=max(console.width, natural - spare)).print(table)
