"""Cost of training by length, vocabulary, batch and model size, and of sampling by steps and batch.

Prints one JSON line with its floor for each point. The ends of each axis come first. No point starts that would end
after `--budget` seconds. `plot_scaling.py` draws the points.
"""

import argparse
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.machine import alone, machine_row
from benchmarks.operations import Setting, against
from benchmarks.room import again, script_parser
from benchmarks.rows import Report, markdown, read_rows
from benchmarks.workloads import mdlm, ready, sample, train
from unmask.backbones.layers.transformer_block import SIZES

BASE = Setting(1024, 50_257, 64)
LETTERS = {"steps": "T", "length": "L", "vocabulary": "V", "batch": "B", "size": "size"}
TOKENS = 65_536  # of a batch, at every length
READY = "compiled\n"
DEAD = '{"error": "the process died"}'


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
    lines = []
    for row in _ordered(rows, "train"):
        if row.get("out_of_memory"):
            lines.append([_named(row), "out of memory", "", "", ""])
            continue
        figures = [
            f"{row[key] / 1e3:,.0f}k" for key in ("tokens_per_second", "most_tokens_per_second")
        ]
        share, memory = f"{row['share_of_matrix_rate']:.0%}", f"{row['peak_gib'] or 0:.1f}"
        lines.append([_named(row), *figures, share, memory])
    head = ["training", "tok/s", "floor", "of matrix rate", "peak GiB"]
    shown, lines = [*markdown(head, lines), ""], []
    for row in _ordered(rows, "sample"):
        seconds = ("seconds_per_sequence", "least_seconds_per_sequence")
        figures = [f"{row[key]:.3g}" for key in seconds]
        share, calls = f"{row['share_of_matrix_rate']:.0%}", f"{row['calls']:,.0f}"
        lines.append([_named(row), *figures, share, calls])
    shown += markdown(["sampling", "s/seq", "floor", "of matrix rate", "calls a row"], lines)
    return "\n".join(shown)


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

    def __init__(self, report: Report, budget: float, crew: int, tiny: bool) -> None:
        self.report, self.budget, self.crew, self.tiny = report, budget, crew, tiny
        self.begun = time.perf_counter()
        self.longest = 0.0  # seconds of the longest point or crew so far
        self.machine = machine_row(tiny)
        report.write(self.machine)

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.begun

    def run(self, chosen: list[Point]) -> None:
        """Measures points in their order. Sampling points share a network and its compiled code."""
        with alone():
            self._sample([point for point in chosen if point.work == "sample"])
        self.longest = 0.0
        training = [point for point in chosen if point.work == "train"]
        for first in range(0, len(training), self.crew):
            if self._affordable():
                with self._timed():
                    self._train(training[first : first + self.crew])

    def _sample(self, chosen: list[Point]) -> None:
        if not chosen:
            return
        method = ready(mdlm(self._sized(BASE)))
        for point in chosen:
            if self._affordable():
                with self._timed():
                    setting = self._sized(point.setting)
                    self._write(point, attempt(lambda s=setting: sample(method, s, "ancestral", 1)))

    def _train(self, points: list[Point]) -> None:
        """Measures each point in its own process. All compile at once, then take turns."""
        members = [Member(point, self.tiny) for point in points]
        for member in members:
            member.compiled()
        for member in members:
            found = member.measured()
            if found.get("out_of_memory") and len(members) > 1:  # the others may hold the memory
                found = Member(member.point, self.tiny).measured()
            self._write(member.point, found)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = self.spent
        yield
        self.longest = max(self.longest, self.spent - start)

    def _affordable(self) -> bool:
        return self.spent + self.longest < self.budget

    def _sized(self, setting: Setting) -> Setting:
        return setting.tiny() if self.tiny else setting

    def _write(self, point: Point, found: dict[str, Any]) -> None:
        setting = self._sized(point.setting)
        row = {"row": point.name, "work": point.work, "axis": point.axis, "value": point.value}
        row |= {name: getattr(setting, name) for name in ("length", "vocabulary", "batch")}
        measured = against(found, self.machine) if "operations" in found else {}
        self.report.write({**row, **found, **measured, "spent_seconds": self.spent})


def attempt(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The measurement, or its error."""
    try:
        return measure()
    except torch.OutOfMemoryError:
        return {"out_of_memory": True}
    except Exception as error:
        traceback.print_exc(limit=-4)
        return {"error": f"{type(error).__name__}: {str(error)[:500]}"}


class Member:
    """A process that trains at one point. It prints a line when it has compiled, then waits for a line."""

    def __init__(self, point: Point, tiny: bool) -> None:
        self.point = point
        command = [*again(__file__), "--member", point.name, *["--tiny"] * tiny]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.found: dict[str, Any] | None = None

    def compiled(self) -> None:
        """Waits until the process has compiled or failed."""
        assert self.process.stdout
        if (line := self.process.stdout.readline()) != READY:
            self.found = json.loads(line or DEAD)

    def measured(self) -> dict[str, Any]:
        """The figures of this process. The others wait meanwhile."""
        rest, _ = self.process.communicate(None if self.found else "go\n")
        lines = [line for line in rest.splitlines(keepends=True) if line != READY]
        self.found = self.found or json.loads((lines or [DEAD])[-1])
        return self.found


def train_in_turn(point: Point, tiny: bool) -> None:
    """Trains at a point in a process that `Member` started."""

    def wait() -> None:
        print(READY, end="", flush=True)
        sys.stdin.readline()

    setting = point.setting.tiny() if tiny else point.setting
    print(json.dumps(attempt(lambda: train(setting, 20, 10, 5, wait))), flush=True)


def main() -> None:
    parser = script_parser(__doc__, "out", "table", "tiny")
    add = parser.add_argument
    add("--budget", type=float, default=360, help="time limit in seconds")
    add("--only", nargs="+", help="points by name, such as train-length-128")
    add("--crew", type=int, default=1, help="training points compiled together")
    add("--member", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.table:
        print(table(read_rows(*args.table)))
        return
    if args.member:
        train_in_turn(next(p for p in points() if p.name == args.member), args.tiny)
        return
    chosen = [point for point in points() if not args.only or point.name in args.only]
    Scaling(Report(args.out), args.budget, args.crew, args.tiny).run(chosen)
