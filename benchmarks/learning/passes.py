"""Passes over a small text: the held-out bound of MDLM and of an autoregressive model after each pass.

    python benchmarks/learning passes --runs runs/passes --out benchmarks/learning/passes.jsonl --processes 4
    python benchmarks/learning passes --table benchmarks/learning/passes.jsonl --plot docs/images/passes.png

Both methods train on the same rows of Python's standard library with the recipe `code`, for several horizons: the
learning rate falls to zero at the end of each. A run is validated 16 times. With `--seconds` the script ends in time, and
the same command continues it: runs resume from their checkpoints.
"""

import argparse
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.limited import side_by_side
from benchmarks.pictures import picture
from benchmarks.room import script_parser
from benchmarks.rows import markdown, read_rows

BATCH = 128
VALIDATIONS = 16
RECIPES = {"mdlm": "code", "autoregressive": "code-autoregressive"}
# method, dropout, steps
SETTINGS = (
    *(("mdlm", 0.1, 3200), ("autoregressive", 0.1, 3200), ("autoregressive", 0.3, 3200)),
    *(("mdlm", 0.1, 800), ("autoregressive", 0.1, 800), ("autoregressive", 0.3, 800)),
    *(("mdlm", 0.1, 200), ("autoregressive", 0.1, 200), ("mdlm", 0.0, 3200)),
)
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}  # Student's t for a 95% interval of the mean, by n


@dataclass(frozen=True)
class Job:
    """One training run."""

    method: str
    dropout: float
    steps: int
    seed: int

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return f"{self.method}-{self.dropout}-{self.steps}-{self.seed}"

    def command(self, run: Path, args: argparse.Namespace) -> list[str]:
        """The command that trains, or resumes."""
        settings: dict[str, Any] = {
            "data.train": args.data,
            "data.holdout": 0.04,
            "data.shorten": 0,  # rows of one length for both methods
            "backbone.dropout": self.dropout,
            "training.steps": self.steps,
            "training.batch": BATCH,
            "training.warmup": min(200, self.steps // 8),
            "training.validate_every": max(1, self.steps // VALIDATIONS),
            "training.validation_rows": 0,
            "training.validation_draws": 4 if self.method == "mdlm" else 1,
            "training.save_every": self.steps,
            "training.keep_best": 0,
            "training.log_every": max(1, self.steps // VALIDATIONS),
        }
        if args.tiny:
            settings |= {"training.batch": 2, "backbone.width": 48, "backbone.depth": 1}
            settings |= {"data.tokenizer.size": 600, "training.compile": "false"}
            settings |= {"training.steps": 16, "training.validate_every": 8}
        options = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
        train = ["-m", "unmask", "train", RECIPES[self.method], "--run", str(run)]
        return [sys.executable, "-u", *train, "--seed", str(self.seed), *options]


def train(args: argparse.Namespace) -> None:
    """Runs the jobs, some at a time, and writes the rows of each that ends."""
    done = {row["run"] for row in read_rows(args.out)} if args.out.exists() else set()
    args.runs.mkdir(parents=True, exist_ok=True)
    jobs = [Job(*setting, seed) for seed in args.seeds for setting in SETTINGS]
    commands = {
        job: job.command(args.runs / job.name, args) for job in jobs if job.name not in done
    }
    log = lambda job: args.runs / f"{job.name}.txt"  # noqa: E731
    for job, code, seconds in side_by_side(commands, log, args.processes, args.seconds):
        print(f"[{seconds:.0f} s] {job.name}: {f'code {code}' if code else 'done'}", flush=True)
        if code == 0:
            with args.out.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows_of(job, args.runs))


def rows_of(job: Job, runs: Path) -> Iterator[dict[str, Any]]:
    """A row for each validation of a run."""
    printed = (runs / f"{job.name}.txt").read_text()
    found = re.search(r"([\d,]+) rows of (\d+) tokens", printed)
    assert found is not None
    rows, length = (int(number.replace(",", "")) for number in found.groups())
    loss = None
    for line in (runs / job.name / "log.jsonl").read_text().splitlines():
        entry = json.loads(line)
        loss = entry.get("loss", loss)
        if "validation" in entry:
            measured = entry["validation"]
            yield {
                "run": job.name,
                "method": job.method,
                "dropout": job.dropout,
                "steps": job.steps,
                "seed": job.seed,
                "step": entry["step"],
                "passes": round(entry["step"] * BATCH / rows, 3),
                "rows": rows,
                "length": length,
                "loss": loss,
                "nats": measured["nats"],
                "error": measured["error"],
                "bits_per_byte": measured["bits_per_byte"],
            }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: for each setting, the best and the last validation, as means over seeds with 95% intervals."""
    groups: dict[tuple[Any, ...], dict[int, list[dict[str, Any]]]] = defaultdict(dict)
    for row in rows:
        key = (-row["steps"], row["method"], row["dropout"])
        groups[key].setdefault(row["seed"], []).append(row)
    head = [
        "method",
        "dropout",
        "passes",
        "best bits/byte",
        "after passes",
        "last bits/byte",
        "seeds",
    ]
    lines = []
    for (_, method, dropout), seeds in sorted(groups.items()):
        last = [run[-1] for run in seeds.values()]
        best = [min(run, key=lambda row: row["nats"]) for run in seeds.values()]
        after = sorted(row["passes"] for row in best)
        low, end = (interval([row["bits_per_byte"] for row in each]) for each in (best, last))
        passed = " ".join(f"{passes:.0f}" for passes in after)
        cells = [method, f"{dropout:g}", f"{last[0]['passes']:.0f}", low, passed, end, len(seeds)]
        lines.append(cells)
    return "\n".join(markdown(head, lines))


def interval(values: list[float]) -> str:
    """The mean over seeds with its 95% interval by Student's t."""
    if len(values) not in T95:
        return f"{mean(values):.3f}"
    return f"{mean(values):.3f} ± {T95[len(values)] * stdev(values) / len(values) ** 0.5:.3f}"


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Curves of the longest horizon, a line for each seed."""
    with picture(file, (7, 4), dpi=150) as (_, (axes,)):
        longest = max(row["steps"] for row in rows)
        colours: dict[tuple[str, float], str] = {}
        runs = {row["run"]: row for row in rows if row["steps"] == longest}
        for name, one in sorted(runs.items()):
            curve = [row for row in rows if row["run"] == name]
            key = one["method"], one["dropout"]
            first = key not in colours
            colour = colours.setdefault(key, f"C{len(colours)}")
            x, y = ([row[part] for row in curve] for part in ("passes", "bits_per_byte"))
            label = f"{key[0]}, dropout {key[1]:g}" if first else None
            axes.plot(x, y, marker=".", color=colour, label=label, linewidth=1)
        axes.set(
            xlabel="passes over the text",
            ylabel="held-out bits per byte",
            xscale="log",
            yscale="log",
        )
        axes.legend(frameon=False)


def main() -> None:
    parser = script_parser(__doc__, "table", "plot", "tiny")
    add = parser.add_argument
    add("--data", default="python:stdlib", help="the text")
    add("--runs", type=Path, default=Path("runs/passes"), help="folder of the runs")
    add("--out", type=Path, default=Path("passes.jsonl"), help="file of the rows")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2])
    add("--processes", type=int, default=1, help="runs at a time")
    add("--seconds", type=float, default=math.inf, help="time limit; the same command continues")
    args = parser.parse_args()
    if args.table:
        print(table(read_rows(*args.table)))
        if args.plot:
            plot(read_rows(*args.table), args.plot)
    else:
        train(args)
