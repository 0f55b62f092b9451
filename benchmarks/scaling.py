"""How cost grows: training with length, vocabulary, batch and model size, sampling with steps and batch.

One JSON line a point, each with its floor; the most telling points come first, and `--budget` stops
before the time is out. `plot_scaling.py` draws them.
"""

import argparse
import contextlib
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from machine import Report, alone, machine_row, read_rows
from operations import Setting, against
from workloads import mdlm, ready, sample, train

from unmask.backbones.transformer import SIZES

BASE = Setting(1024, 50_257, 64)
LETTERS = {"steps": "T", "length": "L", "vocabulary": "V", "batch": "B", "size": "size"}
TOKENS = 65_536  # a batch, whatever the length


@dataclass(frozen=True)
class Point:
    """A value on one of the axes."""

    work: str  # train | sample
    axis: str  # length | vocabulary | batch | size | steps
    value: int | str
    setting: Setting

    @property
    def name(self) -> str:
        return f"{self.work}-{self.axis}-{self.value}"


def points() -> list[Point]:
    """All points: for each axis its ends first, so that a budget cuts the middle."""
    sampling = replace(BASE, batch=16)
    trained = [
        _axis("train", "length", (1024, 128, 4096, 512, 2048, 256), BASE),
        _axis("train", "vocabulary", (256, 131_072, 8192, 32_768, 1024), BASE),
        _axis("train", "size", ("medium", "tiny"), BASE),
        _axis("train", "batch", (16, 128, 1, 4), BASE),
    ]
    return [
        *_axis("sample", "steps", (1000, 8, 128, 4096, 32, 512), sampling),
        *_axis("sample", "batch", (1, 64, 4), sampling),
        *_in_turn(trained),
    ]


def _axis(work: str, axis: str, values: tuple[int | str, ...], base: Setting) -> list[Point]:
    found = []
    for value in values:
        setting = replace(base, **{axis: value})
        if axis == "length":
            setting = replace(setting, batch=TOKENS // setting.length)
        found.append(Point(work, axis, value, setting))
    return found


def _in_turn(axes: list[list[Point]]) -> Iterator[Point]:
    """The first of every axis, then the second of every axis, and so on."""
    for rank in range(max(map(len, axes))):
        yield from (axis[rank] for axis in axes if rank < len(axis))


def table(rows: list[dict[str, Any]]) -> str:
    """The points as two Markdown tables, in the order of each axis."""
    lines = [
        "| training | tok/s | floor | of matrix rate | peak GiB |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in _ordered(rows, "train"):
        if row.get("out_of_memory"):
            lines.append(f"| {_named(row)} | out of memory | | | |")
            continue
        figures = [
            f"{row[key] / 1e3:,.0f}k" for key in ("tokens_per_second", "most_tokens_per_second")
        ]
        share, memory = f"{row['share_of_matrix_rate']:.0%}", f"{row['peak_gib'] or 0:.1f}"
        lines.append(f"| {' | '.join([_named(row), *figures, share, memory])} |")
    lines += [
        "",
        "| sampling | s/seq | floor | of matrix rate | calls a row |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in _ordered(rows, "sample"):
        seconds = ("seconds_per_sequence", "least_seconds_per_sequence")
        figures = [f"{row[key]:.3g}" for key in seconds]
        share, calls = f"{row['share_of_matrix_rate']:.0%}", f"{row['calls']:,.0f}"
        lines.append(f"| {' | '.join([_named(row), *figures, share, calls])} |")
    return "\n".join(lines)


def _ordered(rows: list[dict[str, Any]], work: str) -> list[dict[str, Any]]:
    values = [*SIZES, *sorted(p.value for p in points() if isinstance(p.value, int))]
    found = [row for row in rows if row.get("work") == work and "error" not in row]
    axes = list(LETTERS)
    return sorted(found, key=lambda row: (axes.index(row["axis"]), values.index(row["value"])))


def _named(row: dict[str, Any]) -> str:
    value = row["value"]
    shown = f"{value:,}" if isinstance(value, int) else value
    return f"{LETTERS[row['axis']]} = {shown}"


class Scaling:
    """Measures points until the budget, in seconds, is spent."""

    def __init__(self, report: Report, begun: float, budget: float, tiny: bool) -> None:
        self.report, self.begun, self.budget, self.tiny = report, begun, budget, tiny
        self.longest = {"train": 0.0, "sample": 0.0}
        self.machine = machine_row(tiny)
        report.write(self.machine)

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.begun

    def run(self, chosen: list[Point]) -> None:
        """Points in their order; sampling ones share a network and what it has compiled."""
        with alone():
            self._sample([point for point in chosen if point.work == "sample"])
        for point in chosen:
            if point.work == "train" and self._affordable(point):
                with alone():
                    self._measure(point, lambda setting: train(setting, 15, 5, 5))

    def _sample(self, chosen: list[Point]) -> None:
        if not chosen:
            return
        method = ready(mdlm(self._sized(BASE)))
        for point in chosen:
            if self._affordable(point):
                self._measure(point, lambda setting: sample(method, setting, "ancestral", runs=1))

    def _affordable(self, point: Point) -> bool:
        return self.spent + self.longest[point.work] < self.budget

    def _sized(self, setting: Setting) -> Setting:
        return setting.tiny() if self.tiny else setting

    def _measure(self, point: Point, measure: Any) -> None:
        setting, start = self._sized(point.setting), self.spent
        row = {"row": point.name, "work": point.work, "axis": point.axis, "value": point.value}
        shape = {"length": setting.length, "vocabulary": setting.vocabulary, "batch": setting.batch}
        try:
            found = measure(setting)
            row |= {**shape, **found, **against(found, self.machine)}
        except torch.OutOfMemoryError:
            row |= {**shape, "out_of_memory": True}
        except Exception as error:
            traceback.print_exc(limit=-4)
            row |= {**shape, "error": f"{type(error).__name__}: {str(error)[:500]}"}
        self.longest[point.work] = max(self.longest[point.work], self.spent - start)
        self.report.write({**row, "spent_seconds": self.spent})


def warm(chosen: list[Point], processes: int, tiny: bool) -> None:
    """Compiles the training points, several at a time, into torch's cache: most of a point's time.

    Two steps each, and nothing is timed; a point that fails here is measured, or fails, later.
    """
    names = [point.name for point in chosen if point.work == "train"]
    parts = [names[first::processes] for first in range(processes) if names[first::processes]]
    command = [sys.executable, __file__, "--touch", *(["--tiny"] if tiny else []), "--only"]
    running = [subprocess.Popen([*command, *part], stdout=subprocess.DEVNULL) for part in parts]
    for process in running:
        process.wait()


def touch(chosen: list[Point], tiny: bool) -> None:
    """Two steps of each training point."""
    for point in chosen:
        with alone(), contextlib.suppress(torch.OutOfMemoryError):
            train(point.setting.tiny() if tiny else point.setting, 2, 1, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=360, help="seconds in all")
    parser.add_argument("--only", nargs="+", help="points by name, such as train-length-128")
    parser.add_argument("--warm", type=int, default=0, help="processes that compile beforehand")
    parser.add_argument("--touch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="a file to add the lines to")
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing, to try it out")
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="print a file of lines as tables"
    )
    args = parser.parse_args()
    if args.table:
        print(table(read_rows(args.table)))
        return
    chosen = [point for point in points() if not args.only or point.name in args.only]
    if args.touch:
        touch(chosen, args.tiny)
        return
    begun = time.perf_counter()
    if args.warm:
        warm(chosen, args.warm, args.tiny)
    Scaling(Report(args.out), begun, args.budget, args.tiny).run(chosen)


if __name__ == "__main__":
    main()
