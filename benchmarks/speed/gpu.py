"""Speed and memory of the package on one GPU against the authors' implementation.

The network is the 12 x 768 DiT in bf16, with dropout 0.1, AdamW, EMA and clipping, on random tokens. The package's own
trainer, samplers and evaluation do the work. Each row is one JSON line. `--table FILE` prints such lines as Markdown.
"""

import sys
import traceback
from dataclasses import dataclass
from typing import Any

from benchmarks.machine import alone, machine_row
from benchmarks.operations import Setting, against
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from benchmarks.workloads import autoregressive, evaluate, mdlm, ready, sample, train


@dataclass(frozen=True)
class Goal:
    """A figure to reach, and the most memory for it."""

    value: float
    gib: float | None = None

    def met(self, value: float, gib: float | None, more_is_better: bool) -> bool:
        enough = value >= self.value if more_is_better else value <= self.value
        return enough and (self.gib is None or gib is None or gib <= self.gib)


@dataclass(frozen=True)
class Work:
    """A row of the table: its work, the figure of the authors' code, and the goals."""

    name: str
    kind: str  # train | sample | decode | evaluate
    setting: Setting
    authors: Goal | None
    bar: Goal
    aim: Goal

    @property
    def more_is_better(self) -> bool:
        return self.kind in ("train", "evaluate")


WORKS = {
    "train-1024": Work(
        "train, L=1024, V=50,257, B=64", "train", Setting(1024, 50_257, 64),
        Goal(161_300, 93.7), Goal(540_000, 30), Goal(650_000, 24),
    ),
    "train-128": Work(
        "train, L=128, V=30,522, B=256", "train", Setting(128, 30_522, 256),
        Goal(176_900, 37.0), Goal(620_000, 17), Goal(740_000),
    ),
    "sample-1024-16": Work(
        "sample, T=1000 exact, L=1024, B=16", "sample", Setting(1024, 50_257, 16, 1000),
        Goal(3.05, 11.4), Goal(0.31), Goal(0.24),
    ),
    "sample-1024-1": Work(
        "sample, T=1000 exact, L=1024, B=1", "sample", Setting(1024, 50_257, 1, 1000),
        Goal(9.56, 1.4), Goal(0.55), Goal(0.38),
    ),
    "sample-128-64": Work(
        "sample, T=128 exact, L=128, B=64", "sample", Setting(128, 30_522, 64, 128),
        Goal(0.066, 3.8), Goal(0.0048), Goal(0.0036),
    ),
    "autoregressive": Work(
        "AR baseline, 1,024 tokens, B=16, KV cache", "decode", Setting(1024, 50_257, 16),
        None, Goal(0.08), Goal(0.04),
    ),
    "likelihood": Work(
        "likelihood evaluation, L=1024, B=64", "evaluate", Setting(1024, 50_257, 64),
        None, Goal(2.5), Goal(3.2),  # times the training rate
    ),
}  # fmt: skip


def measured(work: Work, setting: Setting, tiny: bool) -> dict[str, Any]:
    """Measures a row: its rate or seconds, memory, and the operations (and bytes) of one unit."""
    if work.kind == "train":
        steps, settled, log_every = (4, 2, 1) if tiny else (60, 20, 10)
        return train(setting, steps, settled, log_every)
    if work.kind == "evaluate":
        return evaluate(setting, batches=2 if tiny else 16, runs=3)
    if work.kind == "decode":
        return sample(ready(autoregressive(setting)), setting, "left_to_right", runs=3)
    return sample(ready(mdlm(setting)), setting, "ancestral", runs=3)


def against_the_goals(work: Work, found: dict[str, Any], report: Report) -> dict[str, Any]:
    """The goals of a row, the authors' figure, and which of them are met. Evaluation is compared with training."""
    value = found.get("tokens_per_second", found.get("seconds_per_sequence"))
    row: dict[str, Any] = {}
    if work.kind == "evaluate":
        training = report.rows.get("train-1024", {}).get("tokens_per_second")
        value = found["tokens_per_second"] / training if training else None
        row["times_training"] = value
    if work.authors and value:
        ratio = value / work.authors.value
        row["times_authors"] = ratio if work.more_is_better else 1 / ratio
    for name, goal in [("authors", work.authors), ("bar", work.bar), ("aim", work.aim)]:
        row[name] = goal and goal.value
        row[f"{name}_gib"] = goal and goal.gib
    for name, goal in [("met", work.bar), ("aim_met", work.aim)]:
        row[name] = value and goal.met(value, found["peak_gib"], work.more_is_better)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    machine = next(row for row in rows if row["row"] == "machine")
    lines = [
        f"{machine['date']}, {machine['device']}, torch {machine['torch']}; measured matrix rate "
        f"{machine['matrix_tflops']:.0f} TFLOP/s (bf16, 8192³), copy bandwidth "
        f"{machine['copy_gb_per_second'] / 1e3:.2f} TB/s:",
        "",
    ]
    head = ["work", "authors", "at least", "aim", "measured", "peak memory", "times authors"]
    works = (_cells(row) for row in rows if row["row"] in WORKS and "error" not in row)
    return "\n".join([*lines, *markdown([*head, "of matrix rate", "floor"], works)])


def _cells(row: dict[str, Any]) -> list[str]:
    work = WORKS[row["row"]]
    value = row.get("tokens_per_second", row.get("seconds_per_sequence"))
    floor = row.get("most_tokens_per_second", row.get("least_seconds_per_sequence"))
    shown = _figure(work, value)
    if work.kind == "evaluate":
        times = row["times_training"]
        shown += f", {times:.2f}× training" if times else ""
    sign = {True: " ✓✓" if row["aim_met"] else " ✓", False: " ✗", None: ""}[row["met"]]
    goals = [_goal(work, goal) for goal in (work.authors, work.bar, work.aim)]
    times = row.get("times_authors")
    return [
        work.name,
        *goals,
        f"**{shown}**{sign}",
        f"{row['peak_gib']:.1f} GiB" if row["peak_gib"] else "",
        f"{times:.1f}×" if times else "",
        f"{row['share_of_matrix_rate']:.1%}",
        _figure(work, floor),
    ]


def _goal(work: Work, goal: Goal | None) -> str:
    if goal is None:
        return "–"
    value = f"{goal.value}× training" if work.kind == "evaluate" else _figure(work, goal.value)
    return f"{value}, {goal.gib:g} GiB" if goal.gib else value


def _figure(work: Work, value: float) -> str:
    if work.more_is_better:
        return f"{value / 1e3:,.0f}k tok/s"
    return f"{value:.3g} s/seq"


def run(name: str, report: Report, machine: dict[str, Any], tiny: bool) -> bool:
    """Measures a row and writes it. A failure does not stop the other rows."""
    work = WORKS[name]
    try:
        with alone():
            found = measured(work, work.setting.tiny() if tiny else work.setting, tiny)
    except Exception as error:
        traceback.print_exc(limit=-4)
        report.write({"row": name, "error": f"{type(error).__name__}: {str(error)[:500]}"})
        return False
    goals = against_the_goals(work, found, report)
    report.write({"row": name, **found, **against(found, machine), **goals})
    return True


def main() -> None:
    parser = script_parser(__doc__, "out", "table", "tiny")
    parser.add_argument("--rows", nargs="+", choices=WORKS, default=list(WORKS), metavar="ROW")
    args = parser.parse_args()
    if args.table:
        print(table(read_rows(*args.table)))
        return
    report = Report(args.out)
    machine = machine_row(args.tiny)
    report.write(machine)
    whole = [run(name, report, machine, args.tiny) for name in args.rows]
    if not all(whole):
        sys.exit(1)
