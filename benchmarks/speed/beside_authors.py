"""Ratios of speed and memory to the authors' code, from stored figures of several days.

The figures are those that `gpu.py` and runs of the authors' code on the same kind of machine printed. In their code torch's
attention stood in for flash-attn. Rates of different days differ, so a row says if both were measured in one run.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.room import script_parser
from benchmarks.rows import markdown, read_rows


def ratios(row: dict[str, Any]) -> list[float]:
    """Times as fast as each run of the other code. Of some runs only the ratio was kept."""
    if "times" in row:
        return [row["times"]]
    more_is_better = row["unit"] == "tok/s"
    found = (row["unmask"] / theirs for theirs in row["authors"])
    return sorted(found if more_is_better else (1 / ratio for ratio in found))


def memory(row: dict[str, Any]) -> float | None:
    """The share of the authors' peak memory, if both are known."""
    return row["unmask_gib"] / row["authors_gib"] if "unmask_gib" in row else None


def _cells(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    for row in rows:
        found = sorted({f"{ratio:.1f}" for ratio in ratios(row)}, key=float)
        share = memory(row)
        yield [
            row["work"],
            row["date"],
            "yes" if row["one_run"] else "no",
            _rates(row, row.get("authors", [])),
            _rates(row, [row["unmask"]] if "unmask" in row else []),
            " to ".join(found),
            "" if share is None else f"{share:.0%}",
        ]


def _rates(row: dict[str, Any], rates: list[float]) -> str:
    return ", ".join(f"{rate:,}" for rate in rates) + f" {row['unit']}" if rates else ""


def main() -> None:
    parser = script_parser(__doc__)
    stored = Path(__file__).with_name("authors.jsonl")
    parser.add_argument("--table", type=Path, default=stored, metavar="FILE", help="stored figures")
    rows = read_rows(parser.parse_args().table)
    head = ["work", "date", "one run", "authors", "unmask", "times", "memory"]
    print("\n".join(markdown(head, _cells(rows), left=3)))
