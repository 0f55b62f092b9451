"""Seconds per text by its length: autoregressive with a KV cache, MDLM with 16 … L steps, and windows.

All networks have one shape and random weights, because the time does not depend on the weights. A row of the results is
one sampler, length and batch. If the time of the shorter length predicts more than `--most` seconds, the row is marked
as left out. Lengths are measured in the given order until `--seconds` have passed. Rows that the file of `--out` has
are not repeated. `--table FILE` prints the rows, `--plot PNG` draws them.
"""

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import DEVICE, alone, machine_row
from benchmarks.operations import Setting
from benchmarks.pictures import picture
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from benchmarks.workloads import autoregressive, mdlm, ready, sample
from unmask.methods.method import Method
from unmask.samplers.ancestral import Ancestral

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
WINDOW = 1024


@dataclass(frozen=True)
class Way:
    """A way to generate a text: a sampler, its method and its steps as a function of the length."""

    name: str
    sampler: str = "ancestral"
    steps: int = 0  # 0: one step for each `tokens` tokens
    tokens: int = 1

    def settings(self, length: int) -> tuple[int, dict[str, Any]]:
        """Steps, and options of the sampler."""
        steps = self.steps or max(1, length // self.tokens)
        if self.sampler == "semi_autoregressive":
            return steps, {"window": WINDOW, "inner": Ancestral(steps=steps)}
        return steps, {}

    @property
    def network(self) -> Callable[[Setting], Method]:
        """Makes the network."""
        return autoregressive if self.sampler == "left_to_right" else mdlm

    def predicted(self, known: dict[int, float], length: int) -> float:
        """Least seconds of a batch by those of the next shorter length: a call is linear in the length."""
        shorter = max((each for each in known if each < length), default=0)
        if not shorter:
            return 0.0
        growth = 2 if self.steps == 0 and self.sampler == "ancestral" else 1  # calls grow, too
        return known[shorter] * (length / shorter) ** growth


WAYS = (
    Way("autoregressive, KV cache", "left_to_right"),
    Way("MDLM, 16 steps", steps=16),
    Way("MDLM, 64 steps", steps=64),
    Way("MDLM, 256 steps", steps=256),
    Way("MDLM, L/8 steps", tokens=8),
    Way("MDLM, L steps"),
    Way("MDLM in windows, 64 steps each", "semi_autoregressive", steps=64),
)


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each length, batch and way, until the time is up."""
    start, took = time.perf_counter(), defaultdict[tuple[str, int], dict[int, float]](dict)
    earlier = read_rows(args.out) if args.out and args.out.exists() else []
    done = {row["row"] for row in earlier}
    for row in earlier:
        if "seconds_per_sequence" in row:
            took[row["way"], row["batch"]][row["length"]] = (
                row["seconds_per_sequence"] * row["batch"]
            )
    yield machine_row(args.tiny)
    for length, batch, make in product(args.lengths, args.batches, (autoregressive, mdlm)):
        network = Setting(length, args.vocabulary, batch, 1, args.size)
        with alone():
            method = None  # built for the first way that is measured
            for way in WAYS:
                steps, options = way.settings(length)
                skipped = way.sampler == "semi_autoregressive" and length <= WINDOW
                if way.network != make or way.steps > length or skipped:
                    continue
                row = {"row": f"{way.name}/{batch}/{length}", "way": way.name, "batch": batch}
                if row["row"] in done:
                    continue
                known = took[way.name, batch]
                if way.predicted(known, length) > args.most:
                    yield {**row, "length": length, "left_out": f"more than {args.most:g} s"}
                    continue
                if time.perf_counter() - start > args.seconds:
                    return
                method = method or ready(make(network.tiny() if args.tiny else network))
                setting = replace(network, steps=steps)
                found = sample(method, setting, way.sampler, args.runs, **options)
                known[length] = found["seconds_per_sequence"] * batch
                kept = ("seconds_per_sequence", "slowest", "fastest", "calls", "peak_gib")
                yield {**row, "length": length, **{key: found[key] for key in kept}}
            del method


def table(found: list[dict[str, Any]], batch: int) -> Iterator[str]:
    """Seconds per text: one line for each way, one column for each length."""
    mine = [row for row in found if row.get("batch") == batch]
    lengths = sorted({row["length"] for row in mine})
    by = {(row["way"], row["length"]): row for row in mine}
    ways = dict.fromkeys(row["way"] for row in mine)
    lines = ([way, *(_cell(by.get((way, length))) for length in lengths)] for way in ways)
    yield from markdown([f"B = {batch}", *(f"{length:,}" for length in lengths)], lines)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    return row.get("left_out") or f"{row['seconds_per_sequence']:.3g}"


def draw(found: list[dict[str, Any]], file: Path) -> None:
    """Draws seconds per text by its length, one panel for each batch."""
    found = [row for row in found if "seconds_per_sequence" in row]
    batches = sorted({row["batch"] for row in found})
    device = "one GPU" if any(row.get("peak_gib") for row in found) else "a CPU"
    size = (5.5 * len(batches), 4.5)
    with picture(file, size, 1, len(batches), sharey=True) as (_, panels):
        for axes, batch in zip(panels, batches, strict=True):
            for way in dict.fromkeys(row["way"] for row in found):
                mine = [row for row in found if row["way"] == way and row["batch"] == batch]
                mine.sort(key=lambda row: row["length"])
                style = {"color": "black", "linewidth": 2} if way.startswith("auto") else {}
                axes.plot(
                    [row["length"] for row in mine],
                    [row["seconds_per_sequence"] for row in mine],
                    marker="o",
                    markersize=3,
                    label=way,
                    **style,
                )
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("")
            axes.set(
                xlabel="tokens of a text",
                ylabel="seconds a text",
                title=f"{batch} at a time, {device}",
            )
        panels[0].legend(frameon=False, fontsize=8)


def main() -> None:
    parser = script_parser(__doc__, "out", "table", "plot", "tiny")
    add = parser.add_argument
    add("--lengths", type=int, nargs="+", default=LENGTHS)
    add("--batches", type=int, nargs="+", default=[1, 16])
    add("--size", default="small", help="size of the networks; small is 12×768")
    add("--vocabulary", type=int, default=50_257)
    add("--runs", type=int, default=2, help="timed texts; the median counts")
    add("--most", type=float, default=20.0, help="longest time of a batch in seconds")
    add("--seconds", type=float, default=math.inf, help="start nothing after this time")
    add("--threads", type=int, help="threads of a CPU")
    args = parser.parse_args()
    if args.plot and not args.table:
        parser.error("--plot draws the files of --table: give --table FILE")
    if args.table:
        found = read_rows(*args.table)
        for batch in sorted({row["batch"] for row in found if "batch" in row}):
            print("\n".join(table(found, batch)), end="\n\n")
        if args.plot:
            draw(found, args.plot)
        return
    if args.threads and DEVICE.type == "cpu":
        torch.set_num_threads(args.threads)
    report = Report(args.out)
    for row in rows(args):
        report.write(row)
