"""The loss curve with every optimisation on and off, on the same seed, data, noise and dropout.

- `on` is the package's trainer as shipped: bf16, compiled, fused.
- `off` is plain.py: eager float32, dense logits, one tensor after the other.
- Short runs of `off` in bf16 measure the effect of bf16 alone: one with the whole batch, one with two halves.
- A short run of `on` in float32 shows that both forms compute the same function.

Rounding errors grow, so the two curves differ in the end. Their final bounds are therefore compared over several
seeds. Rounding also decides when a fresh network leaves its first plateau. All runs therefore start from weights that
were trained for `--before` steps. `plot_curve.py` draws the curves.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from benchmarks.learning.plain import PlainMDLM, PlainOptimizer
from benchmarks.machine import DEVICE
from benchmarks.room import again, script_parser
from benchmarks.rows import Report, read_rows
from unmask.backbones.dit import DiT
from unmask.backbones.layers.dropout import dropout_keys
from unmask.data.data_config import DataConfig
from unmask.data.load import load_data
from unmask.data.loader import Loader
from unmask.data.rows.row_counts import Totals
from unmask.data.rows.token_rows import Rows
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.diffusion.schedule import LogLinear
from unmask.diffusion.time_sampler import Stratified
from unmask.files.jsonl import JsonLines
from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import likelihood
from unmask.methods.mdlm import MDLM
from unmask.randomness import RowStream
from unmask.runtime.device import autocast
from unmask.shapes import Batch
from unmask.training.trainer import Trainer, TrainingRun
from unmask.training.training_config import TrainingConfig
from unmask.vocabulary import Vocabulary

FIRST = 50  # steps that must agree up to rounding
PRECISIONS = {"on": "bf16", "off": "fp32"}
SHORT = {  # runs of the first steps, with the first seed
    "on-fp32": ["--only", "on", "--precision", "fp32"],
    "off-bf16": ["--only", "off", "--precision", "bf16"],
    "off-bf16-halves": ["--only", "off", "--precision", "bf16", "--halves"],
}


def runs(seeds: int) -> dict[str, list[str]]:
    """The runs by name, each with its own options."""
    long = {
        f"{form}-{n}": ["--only", form, "--seed", str(n)]
        for n in range(seeds)
        for form in PRECISIONS
    }
    short = {name: [*options, "--steps", str(FIRST)] for name, options in SHORT.items()}
    return long | short


def prepare(folder: Path, train: str, valid: str, vocabulary: int, length: int) -> None:
    """Writes a corpus as packed rows of tokens, for a machine that has neither corpus nor tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = TokenizerConfig(size=vocabulary)
    with TemporaryDirectory() as cache:
        data = load_data(DataConfig(train, valid, tokenizer=tokenizer, length=length, cache=cache))
        for name, rows in [("train", data.train), ("valid", data.valid)]:
            x, whole = rows[range(len(rows))]
            assert whole.all()
            np.save(folder / f"{name}.npy", x.numpy().astype(np.uint16))
    text = {"bytes": data.valid.bytes, "characters": data.valid.characters}
    content = {"vocabulary": asdict(data.tokenizer.vocabulary), "valid": text}
    (folder / "corpus.json").write_text(json.dumps(content), encoding="utf-8")
    data.tokenizer.save(folder / "tokenizer")


@dataclass(frozen=True)
class Corpus:
    """The rows that `prepare` wrote."""

    vocabulary: Vocabulary
    train: Rows
    valid: Rows

    @classmethod
    def read(cls, folder: Path) -> "Corpus":
        content = json.loads((folder / "corpus.json").read_text("utf-8"))
        rows = {}
        for name in ("train", "valid"):
            x = np.load(folder / f"{name}.npy").astype(np.int64)
            table = np.insert(x, 0, x.shape[1], axis=1)  # every token is valid
            rows[name] = Rows(table, Totals(len(x), x.size, **content["valid"]))
        return cls(Vocabulary(**content["vocabulary"]), rows["train"], rows["valid"])


class Run:
    """One training run of either form."""

    def __init__(self, kind: type[MDLM], args: argparse.Namespace) -> None:
        self.args, self.corpus = args, Corpus.read(args.data)
        width, depth, heads = args.shape
        config = DiT.Config("", width, depth, heads, dropout=args.dropout)
        torch.manual_seed(args.seed)
        vocabulary = self.corpus.vocabulary
        network = DiT(config, vocabulary)
        # zero gates and a zero head would hide differences in the first steps
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(args.spread * torch.randn_like(parameter))
        if args.start:
            network.load_state_dict(load_file(args.start))
        self.method = kind(MDLM.Config(), network, vocabulary, LogLinear(), Stratified()).to(DEVICE)
        self.loader = Loader(self.corpus.train, args.batch, args.seed)
        self.training = TrainingConfig(
            steps=args.steps,
            batch=args.batch,
            lr=args.lr,
            precision=args.precision,
            compile=DEVICE.type == "cuda" and kind is MDLM,
            device=DEVICE.type,
            validate_every=0,
            save_every=args.steps,
            log_every=1,
        )

    def bound(self) -> Bound:
        """The validation bound, on noise that does not depend on the run."""
        return likelihood(
            self.method, self.corpus.valid, draws=self.args.draws, batch=self.args.batch
        )

    def shipped(self, report: Report) -> None:
        """The package's own trainer."""
        with TemporaryDirectory() as folder:
            say = lambda message: print(message, file=sys.stderr, flush=True)  # noqa: E731
            run = TrainingRun(Path(folder), self.args.seed, say=say)
            trainer = Trainer(self.method, self.loader, self.training, run, validate=self.bound)
            trainer.fit()
            for line in JsonLines(Path(folder) / "log.jsonl").read():
                if "loss" in line:
                    report.write({"row": line["step"], "loss": line["loss"], "norm": line["norm"]})
                elif "validation" in line:  # other lines report sudden changes of the loss
                    found = line["validation"]
                    report.write({"row": "bound", "nats": found["nats"], "error": found["error"]})

    def save(self, file: Path) -> None:
        """Saves the network. Other runs start from it."""
        save_file({name: x.cpu() for name, x in self.method.backbone.state_dict().items()}, file)

    def plain(self, report: Report) -> None:
        """The same training in plain torch, with nothing fused, folded or compiled."""
        optimizer = PlainOptimizer(self.method, self.training)
        self.method.train()
        for step in range(self.args.steps):
            loss = self._gradient(step)
            norm = optimizer.step(step)
            report.write({"row": step + 1, "loss": loss, "norm": norm})
        if self.args.steps == FIRST:  # a run that ends before there is anything to validate
            return
        optimizer.use_average()
        with torch.no_grad(), autocast(DEVICE, self.args.precision):
            found = self.bound()
        report.write({"row": "bound", "nats": found.nats, "error": found.error})

    def _gradient(self, step: int) -> float:
        """Adds the gradient of a step's loss. Returns the loss."""
        size = self.args.batch // 2 if self.args.halves else self.args.batch
        total = 0.0
        for first in range(0, self.args.batch, size):
            part = range(first, first + size)
            x, valid = self.loader.batch(step, part)
            stream = RowStream(self.args.seed, step, part, self.args.batch)
            noise = self.method.noise(stream, valid)
            self.method.backbone.dropout_keys = dropout_keys(stream, DEVICE)
            with autocast(DEVICE, self.args.precision):
                nll = self.method.nll(Batch(x, valid), noise)
            share = nll.total / (self.args.batch * x.shape[1])
            share.backward()
            total += share.item()
        return total


def read_runs(folder: Path) -> tuple[dict[str, list[float]], dict[str, dict[str, float]]]:
    """The losses of every run, and the bounds of those that have one."""
    names = runs(len(list(folder.glob("off-[0-9]*.jsonl"))))
    rows = {name: read_rows(folder / f"{name}.jsonl") for name in names}
    losses = {name: [row["loss"] for row in lines if "loss" in row] for name, lines in rows.items()}
    return losses, {name: lines[-1] for name, lines in rows.items() if lines[-1]["row"] == "bound"}


def compare(folder: Path) -> dict[str, Any]:
    """Checks that the first steps agree up to rounding, and the bounds over all seeds up to their error."""
    losses, bounds = read_runs(folder)
    seeds = len(bounds) // 2
    first = {name: np.array(values[:FIRST]) for name, values in losses.items()}
    apart = np.stack([abs(first[f"on-{n}"] / first[f"off-{n}"] - 1) for n in range(seeds)])
    plain = [first["off-0"], first["off-bf16"], first["off-bf16-halves"]]
    level = max(abs(a / b - 1).max() for a, b in combinations(plain, 2))
    on, off = (
        np.array([bounds[f"{form}-{n}"]["nats"] for n in range(seeds)]) for form in PRECISIONS
    )
    differences = on - off
    error = float(differences.std(ddof=1)) / math.sqrt(seeds) if seeds > 1 else math.inf
    within, agree = bool(apart.max() <= 2 * level), abs(differences.mean()) <= 2 * error
    return {
        "row": "verdict",
        "first_steps": apart.shape[1],
        "largest_relative_difference": float(apart.max()),
        "rounding_level": float(level),
        "bf16_spacing": 2.0**-8,
        "within_rounding": within,
        "largest_relative_difference_fp32": float(abs(first["on-fp32"] / first["off-0"] - 1).max()),
        "seeds": seeds,
        "on_nats": float(on.mean()),
        "off_nats": float(off.mean()),
        "bound_error": max(bound["error"] for bound in bounds.values()),
        "on_by_seed": [round(value, 4) for value in on.tolist()],
        "off_by_seed": [round(value, 4) for value in off.tolist()],
        "difference": float(differences.mean()),
        "difference_error": error,
        "bounds_agree": bool(agree),
        "verdict": "same curve" if within and agree else "curves differ",
    }


def judge(folder: Path) -> None:
    """Writes the verdict into the folder of the runs."""
    Report(folder / "verdict.jsonl").write(compare(folder))


def all_runs(args: argparse.Namespace, given: list[str]) -> None:
    """Starts all runs at once, each in its own process, then writes the verdict."""
    args.out.mkdir(parents=True, exist_ok=True)
    given = [*given, *_common_start(args, given)]
    running = []
    for name, options in runs(args.seeds).items():
        file = args.out / f"{name}.jsonl"
        file.unlink(missing_ok=True)
        command = [*again(__file__), *given, *options, "--out", str(file)]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    failed = [process.args for process in running if process.wait()]
    if failed:
        sys.exit(f"these runs failed: {failed}")
    judge(args.out)


def _common_start(args: argparse.Namespace, given: list[str]) -> list[str]:
    """Trains the weights that all runs start from. Returns the option with their path."""
    if not args.before:
        return []
    file = str(args.out / "start.safetensors")
    options = ["--only", "on", "--seed", "-1", "--steps", str(args.before), "--save", file]
    command = [*again(__file__), *given, *options, "--out", f"{file}.jsonl"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return ["--start", file]


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--prepare", type=Path, metavar="FOLDER", help="write the corpus and stop")
    add("--train", default="builtin:pydoc", help="a corpus to prepare")
    add("--valid", default="", help="its validation text; by default a part of it")
    add("--vocabulary", type=int, default=4096)
    add("--length", type=int, default=128)
    add("--data", type=Path, help="folder that --prepare wrote")
    add("--out", type=Path, help="a folder for all runs, or a file for --only")
    add("--only", choices=("on", "off"), help="one run, in this process")
    add("--precision", choices=("fp32", "bf16"), help="on: bf16, off: fp32")
    add("--halves", action="store_true", help="with --only off: sum the batch in two halves")
    add("--steps", type=int, default=2000)
    add("--before", type=int, default=1000, help="steps of the common start")
    add("--start", type=Path, help="weights that a run starts from")
    add("--save", type=Path, help="the file for a run's final weights")
    add("--batch", type=int, default=64)
    add("--shape", type=int, nargs=3, default=(256, 4, 4), metavar=("W", "D", "H"))
    add("--dropout", type=float, default=0.1)
    add("--lr", type=float, default=1e-3)
    add("--spread", type=float, default=0.02, help="noise on the initial weights")
    add("--seeds", type=int, default=4, help="pairs of runs")
    add("--seed", type=int, default=0, help="seed of one run")
    add("--draws", type=int, default=4, help="noise draws of the validation bound")
    add("--compare", type=Path, metavar="FOLDER", help="write the verdict of finished runs")
    args = parser.parse_args()
    if args.prepare:
        prepare(args.prepare, args.train, args.valid, args.vocabulary, args.length)
    elif args.compare:
        judge(args.compare)
    elif args.data is None:
        parser.error("--data is missing: give the folder that --prepare FOLDER wrote")
    elif args.only is None:
        all_runs(args, sys.argv[1:])
    else:
        args.precision = args.precision or PRECISIONS[args.only]
        report, start = Report(args.out, figures=9), time.perf_counter()
        run = Run(MDLM if args.only == "on" else PlainMDLM, args)
        run.shipped(report) if args.only == "on" else run.plain(report)
        if args.save:
            run.save(args.save)
        print(f"{args.only}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
