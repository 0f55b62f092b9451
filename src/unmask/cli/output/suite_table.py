"""Terminal output of a suite: a progress bar, then a table with notes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from unmask.cli.output.tables import fact_table, print_whole, say
from unmask.evaluation.suites.suite import Progress, Suite

_NOTES = 48  # least width of the text in the last column
_NUMBER = re.compile(r"[≤≈]? ?[-+]?[\d.]*\d")


class Bar(Progress):
    """A progress bar on standard error; without a terminal, a line for each row."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.names: list[str] = []
        self.count = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str) -> None:
        """Prints a line, above the bar if there is one."""
        if self._bar is None:
            say(line)
        else:
            self._bar.console.print(line, markup=False)

    def expect(self, names: Sequence[str]) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as Drawn

        self.names = list(names)
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        columns: Any = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        if console.is_terminal:
            self._bar = Drawn(*columns, console=console)
            self._task = self._bar.add_task(self.names[0], total=len(names))
            self._bar.start()

    def done(self, cells: Mapping[str, str]) -> None:
        """Counts a measured row and shows the name of the next one."""
        self.count += 1
        if self.count > len(self.names):  # more rows than `expect` named
            return
        if self._bar is not None:
            next_name = [*self.names, ""][self.count]
            self._bar.update(self._task, completed=self.count, description=next_name)
        elif not self.quiet and len(self.names) > 1:
            name = self.names[self.count - 1]
            figures = [f"{title} {text}" for title, text in cells.items() if text not in name]
            self.say(f"{name}: {', '.join(figures)}")


def show(suite: Suite, rows: Sequence[Any], title: str | None) -> None:
    """Prints the table of a suite's rows and its notes."""
    from rich.console import Console
    from rich.text import Text

    if not rows:
        return
    if summary := suite.summary(rows):
        Console(highlight=False).print(summary, markup=False, soft_wrap=True)
    if suite.tall:
        for row in rows:
            table = fact_table(title or suite.to_dict(row).get("model") or "")
            for name, text in suite.cells(row).items():
                if text:
                    table.add_row(name, Text(text))
            Console().print(table)
    else:
        _print_wide([suite.cells(row) for row in rows])
    console = Console(highlight=False)
    for note in suite.notes(rows):
        console.print(note, markup=False, soft_wrap=True)


def _print_wide(rows: Sequence[Mapping[str, str]]) -> None:
    """Prints a line for each row. Numbers are right-aligned, and text in the last column wraps."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    titles = [title for title in rows[0] if any(row[title] for row in rows)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    spare = 0
    for title in titles:
        texts = [row[title] for row in rows]
        number = any(_NUMBER.match(text) for text in texts)
        if number or title != titles[-1]:
            table.add_column(Text(title), justify="right" if number else "left", no_wrap=True)
        else:
            table.add_column(Text(title), overflow="fold")
            spare = max(0, max(map(len, texts)) - _NOTES)
    for row in rows:
        table.add_row(*(Text(row[title]) for title in titles))
    print_whole(table, spare)
