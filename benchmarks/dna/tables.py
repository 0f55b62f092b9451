"""Tables 6 and 7 of the MDLM paper in small, on one chromosome: perplexity of DNA, and genomic benchmarks.

    python benchmarks/dna tables --data DATA --runs runs/dna --plan          # minutes of each row, measured
    python benchmarks/dna tables --data DATA --runs runs/dna                 # trains and measures what is missing
    python benchmarks/dna tables --data DATA --runs runs/dna --seconds 180   # as many steps as fit
    python benchmarks/dna tables --data DATA --runs runs/dna --markov        # only what needs no GPU
    python benchmarks/dna tables --runs runs/dna --table                     # both tables as Markdown

DATA holds human-GRCh37-chr20.fa.xz and genomic-benchmarks-subset.tar.xz. Every result is a JSON line in
RUNS/results.jsonl. A killed run continues where it stopped: finished rows are not repeated, and a training run
resumes from its checkpoint.

Training leaves out every interval of the benchmark's test parts and the held-out intervals: every 16th block of
131,072 bases. An autoregressive row trains for as many tokens as pretraining and fine-tuning have together.

- SEDD needs time conditioning, so its network has it. The other networks have none, as in the paper.
- Plaid diffuses vectors, which have no complement. Its network is one strand of Caduceus: the pretrained layers with
  a new first and a new last layer. It trains on both strands of the data.
"""

import argparse
import json
import math
import statistics
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import unmask
from benchmarks.dna.intervals import chromosome, intervals, test_sequences
from benchmarks.dna.markov import genome_config, measure
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.backbones.backbone import BACKBONES
from unmask.config.run_config import RunConfig, resolve
from unmask.data.load import load_data

GENOME, TASKS = "human-GRCh37-chr20.fa.xz", "genomic-benchmarks-subset.tar.xz"
CHROMOSOME, BASES = "20", 63_025_520
BLOCK, EVERY = 131_072, 16  # bases of a block, and the blocks of which one is held out
PUBLISHED = {  # Table 6, perplexity on the human genome
    "mamba-ar": "3.067",
    "hyena-ar": "3.153",
    "caduceus-plaid": "≤ 3.240",
    "caduceus-sedd": "≤ 3.216",
    "caduceus-mdlm": "≤ 3.199",
}
PRETRAINED_LR, PRETRAINED_BATCH = 8e-3, 1024  # in the paper
TUNED_LR = 1e-3
FEW = 32  # steps that measure the speed of a row; the second half counts


class Row(NamedTuple):
    """A trained model: the row that it starts from, its settings, and its share of the steps."""

    start: str
    settings: dict[str, Any]
    steps: str  # pretraining, tuning or both


ROWS = {
    "mamba-ar": Row(
        "",
        {"method": "autoregressive", "backbone": "mamba", "data.reverse_complement": 0.5},
        "both",
    ),
    "hyena-ar": Row(
        "",
        {"method": "autoregressive", "backbone": "hyena", "data.reverse_complement": 0.5},
        "both",
    ),
    "caduceus-mlm": Row("", {"method": "mlm", "backbone": "caduceus"}, "pretraining"),
    "caduceus-mdlm": Row("caduceus-mlm", {"method": "mdlm", "backbone": "caduceus"}, "tuning"),
    "caduceus-sedd": Row(
        "caduceus-mlm",
        {"method": "sedd", "backbone": "caduceus", "backbone.time_conditioning": True}
        | {"backbone.condition_width": 16},  # few parameters more than the others
        "tuning",
    ),
    "caduceus-plaid": Row(
        "caduceus-mlm",
        {"method": "plaid", "backbone": "bimamba", "backbone.width": 118}
        | {"backbone.time_conditioning": True, "backbone.condition_width": 16}
        | {"data.reverse_complement": 0.5},
        "tuning",
    ),
}
TINY_NETWORK = {
    "backbone.width": 16,
    "backbone.depth": 1,
    "training.batch": 2,
    "training.validation_rows": 4,
    "training.save_every": 2,
    "data.length": 64,
}


class Study:
    """Folders, data and steps of all rows."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.runs = args, Path(args.runs)
        self.results = self.runs / "results.jsonl"
        self.runs.mkdir(parents=True, exist_ok=True)
        steps = {"pretraining": args.pretraining, "tuning": args.tuning}
        self.steps = steps | {"both": sum(steps.values())}

    # data

    def genome(self) -> str:
        """The FASTA file; in tiny mode a random genome with the same layout."""
        if not self.args.tiny:
            return str(Path(self.args.data) / GENOME)
        path = self.runs / "genome.fa"
        if not path.exists():
            import numpy as np

            bases = "".join(np.random.default_rng(0).choice(list("ACGT"), 40_000))
            path.write_text(f">{CHROMOSOME}\n{bases}\n")
        return str(path)

    def beds(self) -> dict[str, str]:
        """BED files of the excluded and of the held-out intervals, written once."""
        size, block = (40_000, 1_000) if self.args.tiny else (BASES, BLOCK)
        excluded, held_out = (
            self.runs / f"{name}.bed" for name in ("exclude", "holdout_intervals")
        )
        if not excluded.exists():
            test = [(100, 400)] if self.args.tiny else sorted(self.test_intervals())
            excluded.write_text(_bed(test))
        if not held_out.exists():
            held = [(start, min(start + block, size)) for start in range(0, size, EVERY * block)]
            held_out.write_text(_bed(held))
        return {path.stem: str(path) for path in (excluded, held_out)}

    def test_intervals(self) -> set[tuple[int, int]]:
        """The intervals of the chromosome whose bases are a test sequence of a benchmark."""
        data = Path(self.args.data)
        return intervals(chromosome(data / GENOME), test_sequences(data / TASKS))

    # training

    def config(self, name: str, seed: int, steps: int = 0) -> RunConfig:
        """The configuration of a row with a seed."""
        row = ROWS[name]
        settings: dict[str, Any] = {
            "seed": seed,
            "data.train": self.genome(),
            "data.packing": "windows",
            "data.tokenizer.kind": "dna",
            "data.length": 1024,
            **{f"data.{part}": bed for part, bed in self.beds().items()},
            "training.steps": steps or self.steps[row.steps],
            "training.batch": self.args.batch,
            "training.warmup": min(500, self.steps[row.steps] // 10 + 1),
            "training.lr": self.learning_rate(row),
            "training.betas": "0.9,0.95",
            "training.weight_decay": 0.1,
            "training.decay": "cosine",
            "training.ema": 0.999,
            "training.precision": self.args.precision,
            "training.compile": self.args.compile,
            "training.validate_every": max(1, self.steps[row.steps] // 4),
            "training.save_every": 500,
            "training.keep": 1,
            **row.settings,
            **(TINY_NETWORK if self.args.tiny else {}),
        }
        if row.start:
            settings["init_from"] = str(self.folder(row.start, 0))
        return resolve({}, settings)

    def learning_rate(self, row: Row) -> float:
        """The paper's rate; that of pretraining is scaled by the square root of the batch."""
        if row.start:
            return TUNED_LR
        return PRETRAINED_LR * math.sqrt(self.args.batch / PRETRAINED_BATCH)

    def folder(self, name: str, seed: int) -> Path:
        """The run folder of a row."""
        return self.runs / f"{name}-{seed}"

    def seeds(self, name: str) -> range:
        """The seeds of a row. Pretraining has one, as in the paper."""
        return range(1 if ROWS[name].steps == "pretraining" else self.args.seeds)

    def done(self) -> list[dict]:
        """All results so far."""
        return read_rows(self.results) if self.results.exists() else []

    def write(self, **row: Any) -> None:
        """Appends a result."""
        Report(self.results, 9).write(row)

    def model(self, name: str, seed: int) -> unmask.Model:
        """The trained model of a row; trains it first, or continues an interrupted run."""
        folder = self.folder(name, seed)
        if not (folder / "model" / "model.json").exists():
            start = ROWS[name].start
            if start:
                self.model(start, 0)
            begun = time.perf_counter()
            unmask.train(self.config(name, seed), folder)
            self.write(
                table="time", row=name, seed=seed, minutes=(time.perf_counter() - begun) / 60
            )
        return unmask.load(folder / "model")

    # rows

    def seconds_per_step(self) -> dict[str, float]:
        """Seconds of a step of each row, from a short run of each network."""
        found: dict[str, float] = {}
        by_network: dict[str, float] = {}
        for name in self.chosen():
            network = ROWS[name].settings["backbone"]
            if network not in by_network:
                few = 2 if self.args.tiny else FEW
                config = self.config(name, 0, few)
                training = replace(config.training, log_every=few // 2, validation_rows=4)
                folder = self.runs / "plan" / name
                unmask.train(
                    replace(config, init_from="", training=training), folder, say=lambda line: None
                )
                clock = (folder / "clock.jsonl").read_text().splitlines()
                rate = json.loads(clock[-1])["tokens_per_second"]
                by_network[network] = config.training.batch * config.data.length / rate
            found[name] = by_network[network]
        return found

    def fit_steps(self, seconds: float) -> None:
        """Chooses the steps once, so that all training together takes `seconds`."""
        planned = [row["steps"] for row in self.done() if row["table"] == "plan"]
        if not planned:
            times = self.seconds_per_step()
            shares = {name: 2 if ROWS[name].steps == "both" else 1 for name in times}
            cost = sum(shares[name] * time * len(self.seeds(name)) for name, time in times.items())
            planned = [max(1, int(seconds / cost))]
            self.write(table="plan", steps=planned[0], seconds_per_step=times)
        self.steps = {"pretraining": planned[0], "tuning": planned[0], "both": 2 * planned[0]}

    def plan(self) -> None:
        """Prints the minutes of each row, from the speed of a short run."""
        total = 0.0
        for name, seconds in self.seconds_per_step().items():
            steps, count = self.steps[ROWS[name].steps], len(self.seeds(name))
            total += steps * seconds / 60 * count
            print(f"{name}: {steps:,} steps, {steps * seconds / 60:.1f} min × {count} seeds")
        print(f"in all: {total:.0f} min of training, without table 7")

    def chosen(self) -> list[str]:
        """The rows to run; those whose backbone is not registered are left out."""
        names = self.args.rows or list(ROWS)
        present = [name for name in names if ROWS[name].settings["backbone"] in set(BACKBONES)]
        for name in set(names) - set(present):
            print(f"{name}: backbone {ROWS[name].settings['backbone']} is not registered")
        return present

    def markov(self) -> None:
        """Held-out perplexity of the Markov baselines."""
        if "markov-11" in {row["row"] for row in self.done() if row["table"] == 6}:
            return
        length, beds = 64 if self.args.tiny else 1024, self.beds()
        data = load_data(
            genome_config(self.genome(), length, beds["exclude"], beds["holdout_intervals"])
        )
        for row in measure(data.train, data.valid, range(4, 12)):
            self.write(table=6, **row)

    def table_6(self) -> None:
        """Held-out perplexity of the Markov baselines and of every row; all rows before the next seed."""
        self.markov()
        done = {(row["row"], row.get("seed", 0)) for row in self.done() if row["table"] == 6}
        for seed, name in product(range(self.args.seeds), self.chosen()):
            # a masked language model has no perplexity; rows that start from it train it
            if ROWS[name].steps == "pretraining" or (name, seed) in done:
                continue
            model = self.model(name, seed)
            bound = model.perplexity(draws=self.args.draws, batch=64)
            width = 1.96 * bound.text_error
            interval = [math.exp(bound.nats + sign * width) for sign in (-1, 1)]
            self.write(
                table=6,
                row=name,
                seed=seed,
                perplexity=bound.perplexity,
                interval=interval,
                certificate=bound.certificate,
                bases=bound.tokens,
                parameters=sum(p.numel() for p in model.method.parameters()),
            )

    def table_7(self) -> None:
        """Accuracy of every row on the genomic benchmarks, fine-tuned with several seeds."""
        from unmask.evaluation.suites.suite import SUITES
        from unmask.extensions.dna.genomic_sets import OFFICIAL

        if not self.args.data:
            print("table 7 reads the genomic benchmarks: give --data")
            return
        done = {(r["row"], r["task"], r["seed"]) for r in self.done() if r["table"] == 7}
        suite = SUITES.build("genomic-benchmarks")
        args = self.args
        options = {"data": args.data, "seeds": 1, "epochs": args.epochs}
        if args.tiny:
            options |= {"limit": 16, "epochs": 1}
        # the first seed of all tasks, then further seeds of the smallest task, then of the next one
        cells = sorted(
            product(range(args.seeds), OFFICIAL),
            key=lambda cell: (cell[0] > 0, sum(OFFICIAL[cell[1]]), cell[0]),
        )
        for (seed, task), name in product(cells, self.chosen()):
            if (name, task, seed) in done or name == "hyena-ar":
                continue
            model = self.model(name, 0)
            for found in suite.measure(model, tasks=(task,), seed=seed, **options):
                self.write(table=7, row=name, seed=seed, **suite.to_dict(found))


def _bed(spans: list[tuple[int, int]]) -> str:
    return "".join(f"{CHROMOSOME}\t{start}\t{end}\n" for start, end in spans)


def tables(rows: list[dict]) -> str:
    """Both tables as Markdown."""
    lines: list[list[Any]] = []
    by_name: dict[str, list[dict]] = {}
    for row in rows:
        if row["table"] == 6:
            by_name.setdefault(row["row"], []).append(row)
    for name, found in by_name.items():
        values = [row["perplexity"] for row in found]
        sign = {"upper": "≤ ", "none": "pseudo "}.get(found[0].get("certificate", ""), "")
        spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        low, high = found[0]["interval"]
        perplexity = f"{sign}{statistics.mean(values):.4f}{spread}"
        cells = [name, perplexity, f"{low:.4f} to {high:.4f}", len(values), PUBLISHED.get(name, "")]
        lines.append(cells)
    head = ["model", "perplexity", "95% interval over windows", "seeds", "paper, whole genome"]
    shown, lines = [*markdown(head, lines)], []
    tasks = [row for row in rows if row["table"] == 7]
    if tasks:
        names = list(dict.fromkeys(row["row"] for row in tasks))
        for task in dict.fromkeys(row["task"] for row in tasks):
            found = [row for row in tasks if row["task"] == task]
            by = [[row for row in found if row["row"] == name] for name in names]
            lines.append([task, found[0]["test"], *map(_accuracy, by)])
        shown += ["", *markdown(["task", "test rows", *names], lines)]
    return "\n".join(shown)


def _accuracy(rows: list[dict]) -> str:
    """Percent: mean and half of the spread over seeds, or the interval over test rows of a single seed."""
    values = [100 * row["accuracy"] for row in rows]
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.1f} [{100 * rows[0]['low']:.1f}, {100 * rows[0]['high']:.1f}]"
    spread = (max(values) - min(values)) / 2
    return f"{statistics.mean(values):.1f} ± {spread:.1f} ({len(values)} seeds)"


def main() -> None:
    parser = script_parser(__doc__, "tiny")
    add = parser.add_argument
    add("--data", default="", help="folder of the genome and the benchmarks")
    add("--runs", default="runs/dna", help="folder of the runs and results")
    add("--rows", nargs="*", choices=ROWS, help="some of the rows")
    add("--pretraining", type=int, default=4000, help="steps of pretraining")
    add("--tuning", type=int, default=4000, help="steps of generative fine-tuning")
    add("--seconds", type=float, help="seconds of all training; sets --pretraining and --tuning")
    add("--batch", type=int, default=256, help="windows of a step")
    add("--seeds", type=int, default=5, help="seeds of fine-tuning")
    add("--epochs", type=int, default=10, help="epochs of table 7")
    add("--tables", type=int, nargs="+", default=[6, 7], help="6, 7 or both")
    add("--draws", type=int, default=8, help="noise draws of a bound")
    add("--precision", default="bf16", help="precision of training")
    add("--compile", action="store_true", help="train with torch.compile")
    add("--markov", action="store_true", help="intervals and Markov baselines only")
    add("--plan", action="store_true", help="prints the minutes of each row")
    add("--table", action="store_true", help="prints both tables")
    args = parser.parse_args()
    if args.tiny:
        args.pretraining, args.tuning, args.seeds, args.draws = 4, 4, 1, 1
        args.precision = "fp32"
    study = Study(args)
    if args.table:
        print(tables(study.done()))
    elif args.plan:
        study.plan()
    elif args.markov:
        study.markov()
    else:
        if args.seconds:
            study.fit_steps(args.seconds)
        if 6 in args.tables:
            study.table_6()
        if 7 in args.tables:
            study.table_7()
        print(tables(study.done()))
