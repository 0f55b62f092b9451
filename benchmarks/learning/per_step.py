"""Bounds of named training settings after given numbers of steps, over several seeds.

`--prepare FOLDER` writes a text as rows of tokens. Without it the package's own trainer trains every setting with every
seed, several runs at a time on one GPU, and writes one JSON line for each run. Runs of one seed have the same initial
weights, rows, noise and dropout. All bounds are of the same held-out rows under the same noise, in fp32.
`--table FILE` prints mean, spread and paired differences of such lines.

A setting is a name, and optional changes after a colon: `muon-linear:training.muon_lr=0.01,training.lr=2e-3`.
"""

import argparse
import math
import multiprocessing
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.learning.curve import Corpus, prepare
from benchmarks.machine import DEVICE, synchronize
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.config.components import build_method
from unmask.config.run_config import RunConfig, resolve
from unmask.data.loader import Loader
from unmask.data.rows.first_rows import FirstRows
from unmask.likelihood.estimate import likelihood
from unmask.methods.method import Method
from unmask.training.trainer import Trainer, TrainingRun
from unmask.vocabulary import Vocabulary

ADAMW = {
    "training.lr": "1e-3",
    "training.precision": "bf16",
    "training.ema": "0",
    "training.cuda_graph": "true",
}
# only this study has these: blocks as the paper writes them, and a network that reads its own first prediction
UNFOLDED, SELF = "unfolded", "self_conditioned"
GATES = {"backbone.gate": "1"}
MUON = {
    **ADAMW,
    **GATES,
    "backbone.zero_out": "true",
    "training.optimizer": "muon",
    "training.lr": "4e-3",
    "training.muon_lr": "0.02",
}
LINEAR = {"training.decay": "linear"}
UNIFORM = {"method.loss_weight": "uniform"}

SETTINGS: dict[str, dict[str, str]] = {
    # the study of the fast path: conditions that all tokens share are folded into the weights, or not
    "folded-bf16": ADAMW,
    "unfolded-bf16": {**ADAMW, UNFOLDED: "true"},
    "fp32": {**ADAMW, "training.precision": "fp32"},
    "unfolded-fp32": {**ADAMW, "training.precision": "fp32", UNFOLDED: "true"},
    # recipes
    "adamw": ADAMW,
    "adamw-linear": {**ADAMW, **LINEAR},
    "adamw-gates": {**ADAMW, **GATES},
    "adamw-uniform": {**ADAMW, **UNIFORM},
    "muon": MUON,
    "muon-linear": {**MUON, **LINEAR},
    "muon-uniform": {**MUON, **UNIFORM},
    "muon-linear-uniform": {**MUON, **LINEAR, **UNIFORM},
    "muon-linear-clipped": {**MUON, **LINEAR, "method.loss_weight": "clipped"},
    "modern": {**MUON, **LINEAR, **UNIFORM, "backbone.name": "modern_dit"},
    "muon-wsd-uniform": {**MUON, "training.decay": "wsd", **UNIFORM},
    "self-conditioned": {**MUON, **LINEAR, **UNIFORM, "backbone.name": "modern_dit", SELF: "true"},
}
FIRST = 3  # steps that are timed separately
HELD_OUT = 2048  # held-out rows that are written; --rows of them are measured
SHAPES = {  # depth, width, heads
    "6x384": (6, 384, 6),
    "12x768": (12, 768, 12),
    "4x128": (4, 128, 4),
    "tiny": (1, 16, 2),
}


@dataclass(frozen=True)
class Job:
    """One run: a setting, a shape and a seed."""

    setting: str
    shape: str
    seed: int

    def config(self, args: argparse.Namespace) -> RunConfig:
        """The run's configuration."""
        name, _, changes = self.setting.partition(":")
        depth, width, heads = SHAPES[self.shape]
        fields = {
            "backbone.depth": str(depth),
            "backbone.width": str(width),
            "backbone.heads": str(heads),
            "training.steps": str(args.steps),
            "training.batch": str(args.batch),
            "training.compile": str(args.compile).lower(),
            "training.device": DEVICE.type,
            "training.warmup": "100",
            "training.log_every": "50",
            **SETTINGS[name],
            **dict(
                change.split("=", 1) for change in re.split(r",(?=[a-z_.]+=)", changes) if change
            ),
        }
        return resolve({}, [(k, v) for k, v in fields.items() if k not in (UNFOLDED, SELF)])

    def method(self, config: RunConfig, vocabulary: Vocabulary) -> Method:
        """The untrained method."""
        method = build_method(config, vocabulary)
        if self.has(SELF):
            self_conditioned(method.backbone, vocabulary.mask_id)
        return method

    def has(self, option: str) -> bool:
        return option in SETTINGS[self.setting.partition(":")[0]]


def self_conditioned(backbone: Any, mask_id: int) -> None:
    """Adds the mean embedding of a first prediction to the inputs at masks (arXiv 2208.04202).

    The first prediction has no gradient. In training, half of the rows have one.
    """
    width, plain, added = backbone.config.width, backbone.trunk, list[torch.Tensor]()
    backbone.prediction = nn.Linear(width, width, bias=False)
    nn.init.zeros_(backbone.prediction.weight)
    backbone.embedding.register_forward_hook(lambda module, inputs, x: x + added[0] if added else x)

    def trunk(inputs: Any, condition: Any, attention: Any, keys: Any, at: Any) -> Any:
        some = inputs[: len(inputs) // 2] if backbone.training else inputs
        with torch.no_grad():
            first = plain(some, condition, attention, None, None)
            mean = backbone.logits(first).softmax(-1) @ backbone.embedding.weight.to(first.dtype)
            mean = mean * (some == mask_id)[..., None]
            mean = torch.cat([mean, mean.new_zeros(len(inputs) - len(some), *mean.shape[1:])])
        added.append(backbone.prediction(mean))
        try:
            return plain(inputs, condition, attention, keys, at)
        finally:
            added.clear()

    backbone.trunk = trunk


class Measured(Trainer):
    """The package's trainer without checkpoints. It measures after given steps and stops at a time limit."""

    def __init__(self, at: list[int], ends: float, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.at, self.ends = set(at), ends
        self.bounds: dict[int, Any] = {}
        self.reached: dict[int, float] = {}  # seconds of steps at each bound
        self.start_seconds = 0.0  # of the first steps, with compilation and other one-time work

    def _step(self) -> None:
        if self.state.step >= FIRST:
            super()._step()
            return
        begun = time.perf_counter()
        super()._step()
        synchronize()
        self.start_seconds += time.perf_counter() - begun

    def _between_steps(self, log: Any, bar: Any) -> None:
        super()._between_steps(log, bar)
        if self.state.step in self.at and self.validate:
            with self._evaluating(), torch.autocast(DEVICE.type, enabled=False):
                self.reached[self.state.step] = self.state.seconds - self.start_seconds
                self.bounds[self.state.step] = self.validate()

    def _due(self, every: int) -> bool:
        return every == self.config.log_every and super()._due(every)

    def _finished(self) -> str:
        return super()._finished() or ("the time is up" if time.time() > self.ends else "")

    def _save(self, good: bool = False) -> None:
        self._collect_losses()


def train(args: argparse.Namespace, job: Job) -> dict[str, Any]:
    """Trains one run. Returns its JSON line."""
    torch.set_num_threads(args.threads)
    corpus, config = _corpus(args.data), job.config(args)
    torch.manual_seed(job.seed)
    method = job.method(config, corpus.vocabulary)
    if job.has(UNFOLDED):
        for block in method.backbone.blocks:
            block.by_row = True  # as if each row had its own condition
    measure = partial(_bound, method, job.method(config, corpus.vocabulary), corpus, args)
    with TemporaryDirectory() as folder:
        loader = Loader(corpus.train, args.batch, job.seed)
        run = TrainingRun(Path(folder), job.seed, say=_silent)
        place = (config.training, run)
        trainer = Measured(args.at, args.ends, method, loader, *place, validate=measure)
        state = trainer.fit()
    seconds = state.seconds - trainer.start_seconds
    found = trainer.bounds
    return {
        "row": f"{job.setting}/{job.shape}/{job.seed}",
        "setting": job.setting,
        "shape": job.shape,
        "seed": job.seed,
        "steps": state.step,
        "bounds": {str(step): round(bound.nats, 5) for step, bound in found.items()},
        "seconds_at": {str(step): round(then, 3) for step, then in trainer.reached.items()},
        "errors": {str(step): round(bound.error, 5) for step, bound in found.items()},
        "seconds": seconds,
        "start_seconds": trainer.start_seconds,
        "step_ms": 1e3 * seconds / max(1, state.step - FIRST),
        "skipped": state.skipped,
        "processes": args.processes,
    }


_read: dict[Path, Corpus] = {}  # by folder, once a process


def _corpus(folder: Path) -> Corpus:
    if folder not in _read:
        _read[folder] = Corpus.read(folder)
    return _read[folder]


def _bound(method: Method, twin: Method, corpus: Corpus, args: argparse.Namespace) -> Any:
    """The bound of the held-out rows, by a network in fp32 that is neither compiled nor unfolded."""
    twin = twin.to(DEVICE).eval()
    twin.load_state_dict(method.state_dict())
    rows = FirstRows(corpus.valid, args.rows)
    return likelihood(twin, rows, draws=args.draws, seed=0, batch=min(128, args.rows))


def _silent(message: str) -> None:
    """Prints nothing, because the lines of parallel runs would mix."""


def work(args: argparse.Namespace, jobs: list[Job]) -> Iterator[dict[str, Any]]:
    """Runs the jobs in `--processes` processes. Yields each line when its run ends."""
    run = partial(_guarded, args)
    if args.processes == 1:
        yield from map(run, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(min(args.processes, len(jobs))) as pool:
        found = pool.imap_unordered(run, jobs)
        for _ in jobs:
            try:  # closing the pool ends a process that hangs
                yield found.next(timeout=max(1.0, args.ends + 20 - time.time()))
            except multiprocessing.TimeoutError:
                print("some runs did not end in time", file=sys.stderr)
                return


def _guarded(args: argparse.Namespace, job: Job) -> dict[str, Any]:
    """The line of a run or of its failure. A run that would start after the time limit does not start."""
    label = {"row": f"{job.setting}/{job.shape}/{job.seed}"}
    if time.time() > args.ends:
        return {**label, "error": "no time was left"}
    try:
        return train(args, job)
    except Exception as error:
        return {**label, "error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


def table(rows: list[dict[str, Any]], against: str) -> Iterator[str]:
    """Means over seeds after each step, and differences from the setting `against` on the same seeds."""
    rows = [row for row in rows if row.get("bounds")]
    steps = sorted({int(step) for row in rows for step in row["bounds"]})
    head = ["setting", "shape", "seeds", "ms a step", *map(str, steps), f"− {against}"]
    by, lines = _by_seed(rows), []
    for (setting, shape), runs in by.items():
        cells = [_mean([run["bounds"].get(str(step)) for run in runs.values()]) for step in steps]
        other, last = by.get((against, shape), {}), str(steps[-1])
        pairs = [
            run["bounds"][last] - other[seed]["bounds"][last]
            for seed, run in runs.items()
            if seed in other and last in run["bounds"] and last in other[seed]["bounds"]
        ]
        times = [run["step_ms"] for run in runs.values() if "step_ms" in run]
        pace = f"{statistics.median(times):.1f}" if times else "–"
        difference = _mean(pairs) if setting != against else "–"
        lines.append([setting, shape, len(runs), pace, *cells, difference])
    yield from markdown(head, lines, left=len(head))


def _by_seed(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
    found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["setting"], row["shape"]), {})[row["seed"]] = row
    return found


def _mean(values: list[float | None]) -> str:
    """Mean ± standard error."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    error = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else math.nan
    return f"{statistics.fmean(known):.4f} ± {error:.4f}"


def prepared(folder: Path, text: str, vocabulary: int, length: int, rows: int) -> None:
    """Writes a text as rows, with a part of its documents held out. `rows` limits the training rows."""
    prepare(folder, text, "", vocabulary, length)
    file = folder / "train.npy"
    x = np.load(file)
    np.save(file, x[: rows or len(x)])
    megabytes = file.stat().st_size / 2**20
    print(
        f"{len(x):,} rows, of which {min(rows or len(x), len(x)):,} are kept: {megabytes:.1f} MiB"
    )


def _parser() -> argparse.ArgumentParser:
    parser = script_parser(__doc__, "out", "table")
    add: Callable[..., Any] = parser.add_argument
    add(
        "--prepare",
        type=Path,
        metavar="FOLDER",
        help="write the rows of --text into this folder and stop",
    )
    add("--text", help="a text to prepare")
    add("--vocabulary", type=int, default=4096, help="tokens of the BPE that is learned from it")
    add("--length", type=int, default=128, help="tokens of a row")
    add("--train-rows", type=int, default=0, help="training rows that are kept; 0 is all")
    add("--data", type=Path, help="folder that --prepare wrote")
    add("--settings", nargs="+", default=["folded-bf16", "unfolded-bf16", "fp32"])
    add("--shapes", nargs="+", default=["6x384"], choices=SHAPES)
    add("--seeds", type=int, default=8)
    add("--first-seed", type=int, default=0)
    add("--steps", type=int, default=1000)
    add("--at", type=int, nargs="+", default=[250, 500, 1000], help="steps after which to measure")
    add("--batch", type=int, default=128)
    add("--rows", type=int, default=512, help="held-out rows that are measured")
    add("--draws", type=int, default=4, help="noise draws of a bound")
    add("--compile", action="store_true", help="compile the network, as training.compile does")
    add("--processes", type=int, default=1, help="runs at a time")
    add("--threads", type=int, default=1, help="CPU threads of each run")
    add("--seconds", type=float, default=540.0, help="time limit of all runs")
    add("--against", default="folded-bf16", help="the setting that the table compares with")
    return parser


def main() -> None:
    parser = _parser()
    args = parser.parse_args()
    if args.table:
        print("\n".join(table(read_rows(*args.table), args.against)))
        return
    if args.prepare:
        if not args.text:
            parser.error("--prepare needs --text")
        prepared(args.prepare, args.text, args.vocabulary, args.length, args.train_rows)
        return
    if args.data is None:
        parser.error("--data is missing: give the folder that --prepare FOLDER wrote")
    for setting in args.settings:
        if setting.partition(":")[0] not in SETTINGS:
            parser.error(f"there is no setting {setting}: choose one of {', '.join(SETTINGS)}")
    args.ends = time.time() + args.seconds
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    # seed by seed, so that after a time limit the finished runs are complete pairs
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    jobs = [
        Job(one, shape, seed) for shape in args.shapes for seed in seeds for one in args.settings
    ]
    for job in jobs[: len(args.settings)]:
        job.config(args)  # reports a mistake in a setting before any run starts
    report = Report(args.out)
    for row in work(args, jobs):
        report.write(row)
