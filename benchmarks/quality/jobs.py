"""Runs the training jobs and tables of quality.md, several at a time on one GPU.

Each job is one command. A job resumes an interrupted run, so the same call continues after an interruption. The result
of a job is in OUT/NAME.json, its output in OUT/NAME.log. A JSON line is printed when a job ends. OUT and the runs must
have the same settings: use new folders after a change of recipes. DATA holds wikipedia.{train,valid,test}.txt.xz, the
folder multi30k, and text8.test, a part of text8 that no run trains on.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.room import again, script_parser
from unmask.extensions.report.measurements import figures
from unmask.extensions.report.scaled_runs import RUNS, Request

UNMASK = [sys.executable, "-m", "unmask"]
TEXT8 = {  # 8 minutes of an H200
    "training.steps": "2300",
    "training.lr": "6e-4",
    "training.warmup": "200",
    "training.decay": "cosine",
    "training.ema": "0.999",
    "training.validate_every": "460",
    "training.validation_rows": "512",
}
NETWORKS = [*RUNS, "mdlm-seed-1", "no-carry-over-seed-1", "d3pm-seed-1"]
TABLES = {"table1": 16, "table8": 16, "table11": 8, "schedules": 8}  # draws


@dataclass(frozen=True)
class Job:
    """A command, and the jobs that must succeed before it."""

    name: str
    command: list[str]
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All jobs, with the folders of text and runs, and a number of steps that replaces that of the recipes."""

    data: Path
    runs: Path
    steps: int | None = None

    def jobs(self) -> Iterator[Job]:
        """All jobs, the longest first."""
        yield from self._text8()
        yield from self._reproductions()
        yield from self._multi30k()

    def request(self) -> Request:
        """The request of `unmask reproduce table1`."""
        steps = [] if self.steps is None else [("training.steps", str(self.steps))]
        return Request(
            "table1",
            "small",
            self.runs,
            **self._wikipedia(),
            overrides=steps,
            budget={"draws": TABLES["table1"]},
            say=partial(print, file=sys.stderr),
        )

    def _wikipedia(self) -> dict[str, str]:
        parts = {"data": "train", "valid": "valid", "test": "test"}
        return {name: str(self.data / f"wikipedia.{part}.txt.xz") for name, part in parts.items()}

    def _text8(self) -> Iterator[Job]:
        """Training on Wikipedia in the format of text8, because DATA has too little of text8 itself."""
        text = self._wikipedia()
        tests = {"bits": text["test"], "bits-of-text8": str(self.data / "text8.test")}
        for recipe in ("text8", "text8-autoregressive"):
            parts = {"data.train": text["data"], "data.valid": text["valid"]}
            yield self._training(recipe, parts | TEXT8)
            for name, test in tests.items():
                yield self._evaluation(name, recipe, ["--data", test, "--draws", "16"])

    def _reproductions(self) -> Iterator[Job]:
        first, *others = NETWORKS  # the first trains the tokenizer that all share
        runs = [str(self.data), "--runs", str(self.runs), *self._steps("")]
        script = [*again(__file__), *runs]
        yield Job(first, [*script, "--train", first])
        for name in others:
            yield Job(name, [*script, "--train", name], (first,))
        for name in NETWORKS:
            yield Job(f"{name}-bound", [*script, "--measure", name], (name,))
        text = [word for name, path in self._wikipedia().items() for word in (f"--{name}", path)]
        for table, draws in TABLES.items():
            how = ["--scale", "small", "--runs", str(self.runs), "--draws", str(draws), "--json"]
            command = [*UNMASK, "reproduce", table, *text, *how, *self._steps("")]
            yield Job(table, command, tuple(f"{name}-bound" for name in NETWORKS))

    def _multi30k(self) -> Iterator[Job]:
        def pairs(part: str) -> str:
            return f"{self.data / 'multi30k' / part}.{{de,en}}"

        text = {"data.train": pairs("train"), "data.valid": pairs("val")}
        for name, seed in product(
            ("multi30k", "multi30k-autoregressive"), ("", "-seed-1", "-seed-2")
        ):
            run = name + seed
            yield self._training(run, text)
            for test in ("test_2016_flickr", "test_2017_flickr"):
                yield self._evaluation(test, run, ["--data", pairs(test)], "translation")
            yield self._evaluation("bound", run, ["--draws", "16"])

    def _training(self, run: str, settings: dict[str, str]) -> Job:
        recipe, _, seed = run.partition("-seed-")
        settings = settings | ({"seed": seed} if seed else {})
        changes = [word for name, value in settings.items() for word in (f"--{name}", value)]
        where = ["--run", str(self.runs / run), "--training.compile", "true"]
        return Job(run, [*UNMASK, "train", recipe, *where, *changes, *self._steps("training.")])

    def _evaluation(
        self, name: str, run: str, options: list[str], suite: str = "likelihood"
    ) -> Job:
        command = [*UNMASK, "evaluate", suite, str(self.runs / run), *options, "--json"]
        return Job(f"{run}-{name}", command, (run,))

    def _steps(self, section: str) -> list[str]:
        return [] if self.steps is None else [f"--{section}steps", str(self.steps)]


def work(jobs: list[Job], slots: int, out: Path) -> int:
    """Runs the jobs, `slots` at a time, each after the jobs that it needs. Returns the number of jobs not done."""
    done = {path.stem for path in out.glob("*.json")}
    waiting = [job for job in jobs if job.name not in done]
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    failed = 0
    while waiting or running:
        for job in [job for job in waiting if done.issuperset(job.after)]:
            if len(running) < slots:
                waiting.remove(job)
                running[job.name] = _begin(job, out), time.monotonic()
        if not running:  # the remaining jobs need a job that failed
            return failed + len(waiting)
        time.sleep(0.2)
        for name, (process, began) in list(running.items()):
            if (code := process.poll()) is None:
                continue
            del running[name]
            seconds = round(time.monotonic() - began, 1)
            print(json.dumps({"job": name, "seconds": seconds, "exit": code}), flush=True)
            if code:
                failed += 1
            else:
                (out / f"{name}.part").rename(out / f"{name}.json")
                done.add(name)
    return failed


def _begin(job: Job, out: Path) -> subprocess.Popen[bytes]:
    with (
        (out / f"{job.name}.part").open("wb") as found,
        (out / f"{job.name}.log").open("ab") as log,
    ):
        log.write(f"{shlex.join(job.command)}\n".encode())
        log.flush()
        return subprocess.Popen(job.command, stdout=found, stderr=log)


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("data", type=Path, help="the folder of all text")
    add("--out", type=Path, default=Path("runs/quality"), help="folder of results and logs")
    add("--runs", type=Path, default=Path("runs/reproduce-small"))
    add("--slots", type=int, default=3, help="jobs at a time")
    add("--only", nargs="+", metavar="JOB", help="some jobs; the jobs that they need must be done")
    add("--steps", type=int, help="training steps of every run, to try the script")
    for one in ("--train", "--measure"):
        add(one, metavar="RUN", choices=NETWORKS, help=argparse.SUPPRESS)
    add("--list", action="store_true", help="print the commands and stop")
    args = parser.parse_args()
    plan = Plan(args.data, args.runs, args.steps)
    if name := args.train or args.measure:
        run = plan.request().measuring(name)  # trains it if necessary
        if args.measure and (bound := run.bound()):
            print(json.dumps({"run": name, **figures(bound)}))
        return
    jobs = list(plan.jobs())
    if unknown := set(args.only or []).difference(job.name for job in jobs):
        parser.error(f"there is no job {', '.join(sorted(unknown))}: --list prints all jobs")
    jobs = [job for job in jobs if not args.only or job.name in args.only]
    if args.list:
        for job in jobs:
            print(f"{job.name}: {shlex.join(job.command)}")
        return
    args.out.mkdir(parents=True, exist_ok=True)
    # without a limit each job uses all cores for its small CPU work: see docs/how-to/several-gpus.md
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // (2 * args.slots))))
    sys.exit(bool(work(jobs, args.slots, args.out)))
