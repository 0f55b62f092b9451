"""Seconds of training to the same bound, for the authors' code and the package, as a table and a picture.

The target is the last bound of the authors' run. A run of the package reaches it at its last step. The number of steps
was fixed before on other seeds. Seconds are those of training steps, without evaluation. The first three steps compile
kernels and have their own column.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.pictures import picture
from benchmarks.room import script_parser
from benchmarks.rows import markdown, read_rows

THEIRS, OURS = "#d55e00", "#0072b2"


def pairs(rows: list[dict[str, Any]]) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]:
    """For each shape the authors' run and the package's runs; trials of settings are left out."""
    rows = [row for row in rows if not row.get("trial")]
    found = {}
    for shape in sorted({row["shape"] for row in rows}, key=lambda name: int(name.split("x")[1])):
        of_shape = [row for row in rows if row["shape"] == shape and row.get("bounds")]
        theirs = [row for row in of_shape if row["setting"].startswith("authors")]
        ours = [row for row in of_shape if not row["setting"].startswith("authors")]
        if len(theirs) == 1 and ours:
            found[shape] = theirs[0], sorted(ours, key=lambda row: row["seed"])
    return found


def target(row: dict[str, Any]) -> float:
    """The authors' last bound: of the raw weights or of their averages, whichever is lower."""
    last = max(row["bounds"], key=int)
    return min(row["bounds"][last], row.get("bounds_ema", row["bounds"])[last])


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of the table."""
    head = ["network", "code", "seed", "steps", "ms a step", "bound", "seconds", "first steps, s"]
    head, lines = [*head, "times less", "with first steps"], []
    for shape, (theirs, ours) in pairs(rows).items():
        for row in (theirs, *ours):
            last = max(row["bounds"], key=int)
            bound = target(row) if row is theirs else row["bounds"][last]
            whole = theirs["seconds"] + theirs["start_seconds"]
            ratio = theirs["seconds"] / row["seconds"]
            with_start = whole / (row["seconds"] + row["start_seconds"])
            reached = bound <= target(theirs)
            cells = [
                shape,
                row["setting"],
                str(row["seed"]),
                last,
                f"{row['step_ms']:.1f}",
                f"{bound:.4f}" + ("" if reached else " (not reached)"),
                f"{row['seconds']:.1f}",
                f"{row['start_seconds']:.1f}",
                f"**{ratio:.1f}**" if row is not theirs else "1",
                f"{with_start:.1f}" if row is not theirs else "1",
            ]
            lines.append(cells)
    yield from markdown(head, lines, left=len(head))


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Bounds over seconds of training, one panel for each shape."""
    found = pairs(rows)
    with picture(file, (5 * len(found), 4), 1, len(found)) as (_, panels):
        for axes, (shape, (theirs, ours)) in zip(panels, found.items(), strict=True):
            for row, colour in [(theirs, THEIRS), *((row, OURS) for row in ours)]:
                steps = sorted(row["bounds"], key=int)
                label = {id(theirs): "the authors' code", id(ours[0]): f"unmask, {len(ours)} seeds"}
                axes.plot(
                    [row["seconds_at"][step] for step in steps],
                    [row["bounds"][step] for step in steps],
                    marker="o",
                    markersize=3,
                    color=colour,
                    label=label.get(id(row)),
                )
            axes.axhline(target(theirs), color="0.5", linewidth=0.8, linestyle="--")
            less = theirs["seconds"] / statistics.fmean(row["seconds"] for row in ours)
            axes.set(
                xscale="log",
                xlabel="seconds of training (one H200)",
                ylabel="bound, nats per token",
                title=f"{shape}: the same bound in 1/{less:.1f} of the time",
            )
            axes.legend(frameon=False)


def main() -> None:
    parser = script_parser(__doc__, "table", "plot")
    args = parser.parse_args()
    if not args.table:
        parser.error("--table is missing: give rows of per_step.py and of the authors' code")
    rows = read_rows(*args.table)
    print("\n".join(table(rows)))
    if args.plot:
        draw(rows, args.plot)
