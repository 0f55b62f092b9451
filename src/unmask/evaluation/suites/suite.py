"""The base class of evaluation suites, which measure a model and return the rows of a table."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, asdict, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from unmask.errors import unknown
from unmask.files.jsonl import finite_json
from unmask.options import check_options, options_of
from unmask.registry import Registry

if TYPE_CHECKING:
    from unmask.model import Model

_KEY = "unmask.column"


class Progress:
    """Prints messages of a running suite on standard error."""

    def say(self, line: str) -> None:
        """Prints a message of one line."""
        print(line, file=sys.stderr)

    def expect(self, names: Sequence[str]) -> None:
        """Receives the names of the rows to come, for a progress bar; ignores them by default."""


def column(default: Any = MISSING, *, title: str = "", format: str = "", shown: bool = True) -> Any:
    """A field of a suite's `Row`, with the settings of its column in the table.

    Args:
        default: Default value of the field.
        title: Head of the column; by default the field's name.
        format: Format specification such as ".2f"; by default 4 significant digits of a float.
        shown: False shows the field in JSON only.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Row:
        ...     share: float = column(title="distinct", format=".1%")
    """
    return field(
        default=default, metadata={_KEY: {"title": title, "format": format, "shown": shown}}
    )


class Suite(ABC):
    """A measurement of a model, in rows.
    `unmask evaluate NAME MODEL` runs the suite registered as NAME.

    The first line of a suite's docstring is its line in `unmask evaluate --help`. The suites of
    this package import torch inside functions only, so that the help appears quickly.
    """

    Options: ClassVar[type]  # frozen dataclass of `unmask.options.option` fields: the flags
    Row: ClassVar[type]  # dataclass; its fields are the table's columns and the keys of --json
    examples: ClassVar[tuple[str, ...]] = ()  # arguments of example commands, for the help
    reads: ClassVar[str] = ""  # other inputs that MODEL can name, for the help
    tall: ClassVar[bool] = False  # True prints each column as a line, for suites of one row

    @abstractmethod
    def rows(self, model: "Model", options: Any, progress: Progress) -> Iterator[Any]:
        """Measures a model.

        Args:
            model: The model.
            options: A checked instance of `Options`.
            progress: Receives messages and the names of the rows to come.

        Returns:
            Instances of `Row`, each as soon as it is measured.
        """

    def saved(self, source: str | None, options: Any) -> Iterator[Any] | None:
        """The rows of an earlier measurement, read from a file; None (the default)
        to measure a model.

        Args:
            source: The argument MODEL, or None without one.
            options: An instance of `Options`.
        """
        return None

    def cells(self, row: Any) -> dict[str, str]:
        """The cells of a row by column title.
        The table omits columns in which all cells are empty.
        """
        cells = {}
        for part in fields(row):
            about = {"title": "", "format": "", "shown": True} | part.metadata.get(_KEY, {})
            if about["shown"]:
                value = getattr(row, part.name)
                spec = about["format"] or (".4g" if isinstance(value, float) else "")
                title = about["title"] or part.name.replace("_", " ")
                cells[title] = "" if value is None else format(value, spec)
        return cells

    def summary(self, rows: Sequence[Any]) -> str:
        """The line above the table, which states the result in words; empty by default."""
        return ""

    def notes(self, rows: Sequence[Any]) -> list[str]:
        """Lines below the table; none by default."""
        return []

    def to_dict(self, row: Any) -> dict[str, Any]:
        """A row for JSON: its `to_dict()` if it has one, else all fields.
        Infinity and NaN become None.
        """
        known = row.to_dict() if hasattr(row, "to_dict") else asdict(row)
        return {name: finite_json(value) for name, value in known.items()}

    def measure(self, model: "Model", **options: Any) -> list[Any]:
        """All rows of a measurement.

        Args:
            model: The model.
            options: Fields of `Options`.

        Returns:
            Instances of `Row`.

        Example:
            >>> suite = SUITES.build("likelihood")
            >>> rows = suite.measure(model, data="notes.txt", draws=4)  # doctest: +SKIP
        """
        known = {one.name for one in options_of(self.Options)}
        for name in options:
            if name not in known:
                raise unknown(f"option of {SUITES.name_of(self)}", name, known)
        chosen = self.Options(**options)
        check_options(chosen)
        return list(self.rows(model, chosen, Progress()))


SUITES: Registry[Suite] = Registry("suite")


def evaluate(model: "Model | str | Path", suite: str = "likelihood", **options: Any) -> list[Any]:
    """Measures a model by a suite.

    Args:
        model: a model, or a name or path for `load`.
        suite: the name of a suite: likelihood, generation, or a suite of an extension.
        options: the options of that suite; `unmask evaluate SUITE --help` lists them.

    Returns:
        The rows of the suite's table.

    Example:
        >>> rows = evaluate("stories", "likelihood", draws=4)  # doctest: +SKIP
    """
    if isinstance(model, str | Path):
        from unmask.model import load

        model = load(model)
    return SUITES[suite]().measure(model, **options)
