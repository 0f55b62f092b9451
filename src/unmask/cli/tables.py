"""Tables in the terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def signed(certificate: str, figure: str) -> str:
    """An upper bound is marked as one."""
    return f"≤ {figure}" if certificate == "upper" else figure


def say(line: str) -> None:
    """A remark, on standard error."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(line, markup=False)


def facts(title: str) -> "Table":
    """A table of names and what they are, to be filled by `add_row`; a long one goes on in the next line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    return table


def print_whole(table: "Table", spare: int = 0) -> None:
    """Numbers are never cut: in a narrow terminal lines go on below, but for `spare` columns of text."""
    from rich.console import Console

    console = Console(highlight=False)
    natural = console.measure(table, options=console.options.update(max_width=1000)).maximum
    Console(highlight=False, width=max(console.width, natural - spare)).print(table)
