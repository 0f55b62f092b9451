"""Rows of measurements: files of JSON lines, and tables of them."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


class Report:
    """Prints one JSON line for each row and appends it to a file if one is given."""

    def __init__(self, file: Path | None, figures: int = 5) -> None:
        self.file, self.figures = file, figures  # further figures would be noise
        self.rows: dict[str, dict[str, Any]] = {}
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)

    def write(self, row: dict[str, Any]) -> None:
        row = {key: self._short(value) for key, value in row.items()}
        line = json.dumps(row)
        print(line, flush=True)
        if self.file:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        self.rows[row.get("row", "")] = row

    def _short(self, value: Any) -> Any:
        return float(f"{value:.{self.figures}g}") if isinstance(value, float) else value


def read_rows(*files: Path) -> list[dict[str, Any]]:
    """The rows of files that `Report` wrote. A line that an interruption has cut is left out."""
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    rows = []
    for line in lines:
        with suppress(json.JSONDecodeError):
            rows += [json.loads(line)] if line.startswith("{") else []
    return rows


def markdown(
    head: Sequence[str], lines: Iterable[Iterable[Any]], left: int | Collection[int] = 1
) -> Iterator[str]:
    """The lines of a Markdown table.

    The first `left` columns, or those with the numbers `left`, are aligned to the left, the others to the right.
    """
    aside = range(left) if isinstance(left, int) else left
    yield f"| {' | '.join(head)} |"
    yield "".join("|---" if column in aside else "|---:" for column in range(len(head))) + "|"
    yield from (f"| {' | '.join(map(str, cells))} |" for cells in lines)
