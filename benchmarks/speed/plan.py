"""Fits the constants of `unmask plan` to some measured rows and checks its predictions on the others.

measured.jsonl holds the training rows of gpu.py, scaling.py and distributed.py on one H200. For time, three constants
are fitted to four rows. For memory, two constants are fitted to two rows. All other rows are predictions.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.room import script_parser
from benchmarks.rows import markdown
from unmask.config.run_config import resolve
from unmask.runs import plan as arithmetic
from unmask.runs.plan import GIB, Machine, Work, memory, pass_seconds, work_of

FILE = Path(__file__).parent / "measured.jsonl"
TIME = ("train-size-medium", "train-size-tiny", "train-length-4096", "train-batch-16")
MEMORY = ("train-size-medium", "train-size-tiny")
ALLOWED = 0.15


def rows(file: Path) -> dict[str, dict[str, Any]]:
    """The training rows by name, each with the shape of its work."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    found = {line["row"]: line for line in lines if line["row"] != "machine"}
    for line in found.values():
        size = line["value"] if line.get("axis") == "size" else "small"
        overrides = [("backbone.size", size), ("data.length", str(line["length"]))]
        line["work"] = work_of(resolve({}, overrides), line["vocabulary"])
    return found


def fitted_time(measured: dict[str, dict[str, Any]], machine: Machine) -> tuple[float, ...]:
    """ATTENTION, TRAFFIC and FIXED by least squares of relative errors. Other products run at full rate."""
    rate, bandwidth = machine.rate * 1e12, machine.bandwidth * 1e12
    left, right = [], []
    for name in TIME:
        line = measured[name]
        work: Work = line["work"]
        tokens, operations = line["batch"] * line["length"], work.operations()
        seconds = tokens / line["tokens_per_second"]
        products = tokens * (operations["linear"] + operations["head"]) / rate
        terms = [
            tokens * operations["attention"] / rate,
            tokens * work.width * work.depth / bandwidth,
            work.parameters / bandwidth,
        ]
        left.append([term / seconds for term in terms])
        right.append((seconds - products) / seconds)
    slower, traffic, fixed = np.linalg.lstsq(np.array(left), np.array(right), rcond=None)[0]
    return 1 / slower, traffic, fixed


def fitted_memory(measured: dict[str, dict[str, Any]]) -> tuple[float, ...]:
    """KEPT and KEPT_ONCE, fitted to the part of the peak that cannot be counted."""
    left, right = [], []
    for name in MEMORY:
        line = measured[name]
        work: Work = line["work"]
        held = memory(work, line["batch"])
        tokens = line["batch"] * line["length"]
        left.append([tokens * work.width * work.depth, tokens * work.width])
        right.append(line["peak_gib"] * GIB - (held.total - held.activations))
    kept, once = np.linalg.solve(np.array(left), np.array(right))
    return kept, once


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    args = parser.parse_args()
    machine, measured = Machine(), rows(args.file)
    names = ("ATTENTION", "TRAFFIC", "FIXED", "KEPT", "KEPT_ONCE")
    values = (*fitted_time(measured, machine), *fitted_memory(measured))
    for name, value in zip(names, values, strict=True):
        print(f"{name} {value:.4g}, in the package {getattr(arithmetic, name):.4g}")
    head = ["row", "tok/s predicted", "measured", "error", "GiB predicted", "measured", "error"]
    worst, lines = 0.0, []
    for name, line in measured.items():
        work, rows_ = line["work"], line["batch"]
        way, recompute = line.get("strategy", "plain"), line.get("recompute", False)
        rate = rows_ * line["length"] / pass_seconds(work, rows_, machine, recompute)
        held = memory(work, rows_, way, recompute=recompute).total / GIB
        errors = (rate / line["tokens_per_second"] - 1, held / line["peak_gib"] - 1)
        marks = ["fitted" if name in part else "" for part in (TIME, MEMORY)]
        worst = max([worst, *(abs(e) for e, mark in zip(errors, marks, strict=True) if not mark)])
        shown = [mark or f"{error:+.1%}" for error, mark in zip(errors, marks, strict=True)]
        rates = [f"{x / 1e3:,.0f}k" for x in (rate, line["tokens_per_second"])]
        lines.append([name, *rates, shown[0], f"{held:.1f}", f"{line['peak_gib']:.1f}", shown[1]])
    print("", *markdown(head, lines), sep="\n")
    print(f"\nlargest error of a row that was not fitted: {worst:.1%}")
    if worst > ALLOWED:
        sys.exit(f"more than {ALLOWED:.0%}")
