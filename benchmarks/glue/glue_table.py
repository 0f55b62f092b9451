"""Table 4 of the MDLM paper in small: GLUE before and after diffusion fine-tuning of an encoder.

The first command trains and measures what is missing. The second compares the speed with transformers' Trainer.
The third reads the generated texts with a judge. The fourth prints the tables as Markdown.

```
python benchmarks/glue glue_table --data DATA --encoder ENCODER --runs runs/glue
python benchmarks/glue glue_table --data DATA --encoder ENCODER --runs runs/glue --speed
python benchmarks/glue glue_table --encoder ENCODER --runs runs/glue --judge smollm2.gguf
python benchmarks/glue glue_table --runs runs/glue --table
```

DATA holds wikipedia.train.txt.xz, wikipedia.valid.txt.xz and wikipedia.test.txt.xz, and the folder glue with a
folder for each task. ENCODER is a folder of BERT's layout, such as all-MiniLM-L6-v2.

- `ar` is a GPT-2-shaped network of the same size. It is trained here from random weights on the same text.
- `encoder` is the encoder as it is. A fresh masked-LM head gives its perplexity.
- `encoder-mlm` is the encoder after masked-LM training (15%), with the same fresh head.
- `encoder-mdlm` is the encoder after MDLM fine-tuning, with the same fresh head and as many steps.

Each result is a file: predictions of a row, a task and a seed, or a JSON line in RUNS/results.jsonl. A killed run
continues where it stopped, and so does one that `--seconds` ended. Processes with different `--rows` can share RUNS.
Only `--table` needs scikit-learn and scipy, so a machine without them can do the rest.

The second table is that of BERT-Mouth: the pseudo-perplexity of each row and the upper bound of the same texts. The
pseudo-perplexity is not a bound.
"""

import argparse
import json
import math
import os
import statistics
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import unmask
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.config.components import build_method
from unmask.config.run_config import RunConfig, resolve, to_dict
from unmask.extensions.glue.glue_suite import GlueOptions, predictions, task_data
from unmask.extensions.glue.glue_tasks import TASKS, TaskData
from unmask.formats.read import read_bundle
from unmask.model import Model

ROWS = ("ar", "encoder", "encoder-mlm", "encoder-mdlm")
METHODS = {"ar": "autoregressive", "encoder-mlm": "mlm", "encoder-mdlm": "mdlm"}
RESAMPLES = 500
TEXT = "the cat sat on the mat and the dog saw a small red box in the old house . "


class Study:
    """Folders, models and results of all rows."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.runs = args, Path(args.runs)
        self.end = time.perf_counter() + args.seconds
        self.models: dict[str, Model] = {}
        self.results = self.runs / "results.jsonl"
        (self.runs / "predictions").mkdir(parents=True, exist_ok=True)

    def text(self, part: str) -> str:
        """A part of Wikipedia; in tiny mode a repeated sentence."""
        if not self.args.tiny:
            return str(Path(self.args.data) / f"wikipedia.{part}.txt.xz")
        path = self.runs / f"{part}.txt"
        path.write_text((TEXT * 4 + "\n") * 40)
        return str(path)

    def tasks(self) -> list[TaskData]:
        """The tasks whose data is present. Prints the names of the others."""
        found, absent = task_data(Path(self.args.data) / "glue", self.args.tasks)
        print(f"absent: {', '.join(absent) or 'none'}")
        few = self.args.train_limit
        return [
            replace(each, train=each.train.first(few)).limited(self.args.limit) for each in found
        ]

    # models

    def config(self, row: str) -> RunConfig:
        """The configuration of a row's training on Wikipedia."""
        args = self.args
        start = read_bundle(args.encoder).config
        shape = to_dict(start.backbone)
        if row == "ar":
            own = ("width", "depth", "heads", "inner", "positions")
            backbone = {"name": "gpt2", **{name: shape[name] for name in own}}
            begin = {"data.tokenizer": {"kind": "hf", "path": str(args.encoder)}}
        else:
            backbone, begin = shape, {"init_from": str(args.encoder)}
        settings = {
            "method": METHODS[row],
            "data.train": self.text("train"),
            "data.valid": self.text("valid"),
            "data.packing": "fit",
            "data.length": args.length,
            "training.steps": args.ar_steps if row == "ar" else args.steps,
            "training.batch": args.batch,
            "training.lr": args.ar_lr if row == "ar" else args.lr,
            "training.warmup": min(2500, args.steps // 2),
            "training.ema": 0.0,
            "training.precision": args.precision,
            "training.validate_every": max(1, args.steps // 4),
            "training.validation_rows": 16 if args.tiny else 512,
            "training.save_every": 1000,
            "training.keep": 1,
            **begin,
        }
        return resolve({"backbone": backbone}, settings)

    def model(self, row: str) -> Model:
        """The model of a row; trains it first, or continues an interrupted run."""
        if row not in self.models:
            self.models[row] = self._model(row)
        return self.models[row]

    def _model(self, row: str) -> Model:
        if row == "encoder":
            return unmask.load(self.args.encoder)
        folder = self.runs / row
        if not (folder / "model" / "model.json").exists():
            begun = time.perf_counter()
            unmask.train(self.config(row), folder)
            minutes = (time.perf_counter() - begun) / 60
            self.write(kind="training", row=row, minutes=minutes)
        return unmask.load(folder)

    # results

    def done(self) -> list[dict[str, Any]]:
        """All results so far."""
        return read_rows(self.results) if self.results.exists() else []

    def write(self, **result: Any) -> None:
        """Appends a result."""
        Report(self.results, 9).write(result)

    def has(self, kind: str, row: str) -> bool:
        """True if the result exists."""
        return any((each["kind"], each["row"]) == (kind, row) for each in self.done())

    def measure_text(self, row: str) -> None:
        """Perplexity on the test text, the pseudo-perplexity of BERT-Mouth, and generated texts."""
        source, args = self.text("test"), self.args
        if not self.has("perplexity", row):
            model = as_mdlm(self.model(row))
            rows = rows_of_text(source, model, args)
            bound = model.perplexity(rows, draws=args.draws, batch=64)
            self.write(kind="perplexity", row=row, **figures(bound))
        if row != "ar" and not self.has("pseudo", row):
            model = as_mdlm(self.model(row))
            few = rows_of_text(source, model, args)[: args.pseudo_texts]
            pseudo = model.perplexity(few, estimator="pseudo", batch=256)
            upper = model.perplexity(few, draws=args.draws, batch=64)
            self.write(kind="pseudo", row=row, **figures(pseudo), upper=figures(upper))
        samples = self.runs / f"{row}.samples.jsonl"
        if not samples.exists():
            model = as_mdlm(self.model(row))
            texts = model.generate(n=args.samples, length=args.length, seed=0, batch=64)
            lines = [json.dumps({"text": each.text}) + "\n" for each in texts]
            samples.write_text("".join(lines), encoding="utf-8")

    def measure_glue(self, tasks: list[TaskData]) -> None:
        """Predictions of every row, task and seed, one file each. All tasks of a seed come before the next seed."""
        args = self.args
        options = GlueOptions(
            epochs=args.epochs, length=args.glue_length, training_precision=args.precision
        )
        for seed, row, data in product(range(args.seeds), args.rows, tasks):
            path = self.runs / "predictions" / f"{row}.{data.task.name}.{seed}.npz"
            if path.exists():
                continue
            model = self.model(row)
            begun = time.perf_counter()
            if begun > self.end:
                print(f"the time is up before {path.name}: run the same command to continue")
                return
            logits = predictions(model, data, options, seed)
            seconds = time.perf_counter() - begun
            new = path.with_suffix(".part.npz")
            np.savez(new, logits=logits, targets=np.array(data.dev.targets))
            os.replace(new, path)
            self.write(kind="glue", row=row, task=data.task.name, seed=seed, seconds=seconds)


def judge(study: Study, spec: str) -> None:
    """Perplexity under a judge and entropy of the generated texts of each row."""
    import torch

    from unmask.evaluation.judges.judge import Sample
    from unmask.evaluation.judges.load_judge import causal_judge
    from unmask.evaluation.metrics.text_quality import measure

    tokenizer = read_bundle(study.args.encoder).tokenizer
    reader = causal_judge(spec, torch.device("cpu"))
    for path in sorted(study.runs.glob("*.samples.jsonl")):
        row = path.name.removesuffix(".samples.jsonl")
        if study.has("judged", row):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines]
        samples = [Sample(tokenizer.encode(text), text) for text in texts if text.strip()]
        found = measure(samples, reader)
        nats = [found.nats.value, found.nats.low, found.nats.high]
        study.write(
            kind="judged", row=row, judge=Path(spec).name, texts=len(samples),
            tokens=statistics.fmean(len(sample.ids) for sample in samples),
            perplexity=[math.exp(value) for value in nats], entropy=found.entropy.value,
        )  # fmt: skip


def figures(bound: Any) -> dict[str, Any]:
    """The figures of a bound that the table shows."""
    names = ("nats", "error", "perplexity", "bits_per_byte", "certificate", "tokens")
    return {name: bound.to_dict()[name] for name in names}


def as_mdlm(model: Model) -> Model:
    """A masked language model as an MDLM with the same weights, so that it has a bound and generates."""
    if model.config.method.name != "mlm":
        return model
    config = replace(model.config, method=resolve({}).method)
    method = build_method(config, model.tokenizer.vocabulary)
    method.load_state_dict(model.method.state_dict())
    return Model(method.to(model.device), model.tokenizer, config, model.defaults)


def rows_of_text(source: str, model: Model, args: argparse.Namespace) -> list[str]:
    """The first texts of a source, each cut to about a row of the training length."""
    from unmask.data.corpora import fields_of
    from unmask.data.sources.open_source import open_corpus

    texts = []
    for document in open_corpus(source, fields_of(model.config.data)):
        words = document.split()
        size = args.length // 2  # words have about 1.3 tokens
        texts += [" ".join(words[i : i + size]) for i in range(0, len(words) - size, size)]
        if len(texts) >= args.texts:
            break
    return texts[: args.texts]


# speed


def speed(study: Study) -> None:
    """Examples per second of fine-tuning, ours and those of transformers' Trainer, in one process.

    Our time includes the tokenizer; the Trainer's own figure does not.
    """
    import torch
    import transformers

    from unmask.representation.classifier import class_logits, classifier_of, fine_tune
    from unmask.training.fine_tune import FineTuning

    args = study.args
    data = next(each for each in study.tasks() if each.task.name == args.speed_task)
    targets = [int(target) for target in data.train.targets]
    encoder = unmask.load(args.encoder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.encoder)

    def accuracy(logits: np.ndarray) -> float:
        return float((logits.argmax(1) == np.array(data.dev.targets)).mean())

    def ours(seed: int) -> tuple[float, float]:
        found = classifier_of(encoder, data.task.classes, seed=seed)
        settings = FineTuning(epochs=args.epochs, precision=args.precision, seed=seed)
        begun = time.perf_counter()
        fine_tune(found, data.train.sentences, targets, settings, length=args.glue_length)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
        return seconds, accuracy(
            class_logits(found, data.dev.sentences, length=args.glue_length).numpy()
        )

    def theirs(seed: int) -> tuple[float, float]:
        network = transformers.AutoModelForSequenceClassification.from_pretrained(
            args.encoder, num_labels=data.task.classes
        )
        settings = transformers.TrainingArguments(
            output_dir=str(study.runs / "trainer"), per_device_train_batch_size=16,
            per_device_eval_batch_size=64, learning_rate=2e-5, num_train_epochs=args.epochs,
            seed=seed, save_strategy="no", report_to=[], disable_tqdm=True, logging_strategy="no",
            bf16=args.precision == "bf16", use_cpu=not torch.cuda.is_available(),
        )  # fmt: skip

        def encoded(examples: Any) -> list[dict[str, Any]]:
            rows = []
            for sentence, target in zip(examples.sentences, examples.targets, strict=True):
                sides = (sentence,) if isinstance(sentence, str) else sentence
                row = tokenizer(*sides, truncation=True, max_length=args.glue_length)
                rows.append({**row, "labels": int(target)})
            return rows

        trainer = transformers.Trainer(
            network, settings, train_dataset=encoded(data.train),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
        )  # fmt: skip
        seconds = trainer.train().metrics["train_runtime"]  # its start is not counted
        return seconds, accuracy(trainer.predict(encoded(data.dev)).predictions)

    ours(0)  # warms up kernels and memory for both
    times: dict[str, list[tuple[float, float]]] = {"unmask": [], "transformers": []}
    for seed in range(args.speed_runs):
        times["unmask"].append(ours(seed))
        times["transformers"].append(theirs(seed))
    examples = len(data.train) * args.epochs
    rate = {name: examples / statistics.median(s for s, _ in runs) for name, runs in times.items()}
    right = {name: statistics.median(a for _, a in runs) for name, runs in times.items()}
    study.write(
        kind="speed", row="encoder", task=data.task.name, precision=args.precision,
        examples_per_second=rate, accuracy=right, ratio=rate["unmask"] / rate["transformers"],
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    )  # fmt: skip


# tables


def table(study: Study) -> str:
    """All results as Markdown, and paired intervals of the differences from the plain encoder."""
    from unmask.extensions.glue.class_scores import scores

    found: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for path in sorted((study.runs / "predictions").glob("*.npz")):
        row, name, _ = path.name.removesuffix(".npz").rsplit(".", 2)
        with np.load(path) as content:
            found.setdefault((row, name), []).append((content["logits"], content["targets"]))

    def score(name: str, logits: np.ndarray, targets: np.ndarray) -> float:
        return statistics.fmean(scores(TASKS[name].scores, logits, targets).values())

    names = [name for name in TASKS if any(each == name for _, each in found)]
    lines: list[list[Any]] = []
    text = {each["row"]: each for each in study.done() if each["kind"] == "perplexity"}
    for row in ROWS:
        cells, by_task = [], []
        for name in names:
            values = [score(name, *each) for each in found.get((row, name), [])]
            by_task.append(values)
            cells.append(_median(values))
        shared = min(map(len, by_task), default=0)
        averages = [statistics.fmean(task[seed] for task in by_task) for seed in range(shared)]
        about = text.get(row)
        sign = "≤ " if about and about["certificate"] == "upper" else ""
        perplexity = f"{sign}{about['perplexity']:.1f}" if about else ""
        lines.append([row, *cells, _median(averages), perplexity])
    shown = [*markdown(["model", *names, "average", "perplexity"], lines), ""]
    mouth = [each for each in study.done() if each["kind"] == "pseudo"]
    lines = []
    for each in sorted(mouth, key=lambda each: ROWS.index(each["row"])):
        pseudo, upper = each["perplexity"], each["upper"]["perplexity"]
        lines.append([each["row"], f"{each['tokens']:,}", f"{pseudo:.1f}", f"{upper:.1f}"])
    shown += markdown(["model", "tokens", "pseudo-perplexity", "perplexity at most"], lines)
    judged = [each for each in study.done() if each["kind"] == "judged"]
    lines = []
    for each in sorted(judged, key=lambda each: ROWS.index(each["row"])):
        middle, low, high = each["perplexity"]
        cells = [each["row"], each["texts"], f"{each['tokens']:.0f}"]
        lines.append([*cells, f"{middle:.0f} [{low:.0f}, {high:.0f}]", f"{each['entropy']:.2f}"])
    if judged:
        head = ["generated texts of", "texts", "tokens a text"]
        head = [*head, f"perplexity under {judged[0]['judge']}", "entropy"]
        shown += ["", *markdown(head, lines)]
    shown += ["", "Difference from the encoder: mean over seeds, 95% interval over examples.", ""]
    lines = []
    for row in ROWS:
        if row == "encoder":
            continue
        cells = []
        for name in names:
            one, other = found.get((row, name), []), found.get(("encoder", name), [])
            cells.append(_difference(name, one, other, score) if one and other else "")
        lines.append([row, *cells])
    shown += markdown(["model", *names], lines)
    return "\n".join(shown)


def _median(values: list[float]) -> str:
    from unmask.extensions.glue.class_scores import median_interval

    if not values:
        return ""
    middle, low, high = median_interval(values)
    return f"{middle:.1f} [{low:.1f}, {high:.1f}]" if len(values) >= 5 else f"{middle:.1f}"


def _difference(name: str, one: list[Any], other: list[Any], score: Any) -> str:
    """Paired bootstrap over the development examples, which all seeds of both rows share."""
    runs = min(len(one), len(other))
    targets = one[0][1]
    generator = np.random.default_rng(0)

    def difference(rows: np.ndarray) -> float:
        return statistics.fmean(
            score(name, one[seed][0][rows], targets[rows])
            - score(name, other[seed][0][rows], targets[rows])
            for seed in range(runs)
        )

    draws = [
        difference(generator.integers(len(targets), size=len(targets))) for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{difference(np.arange(len(targets))):+.1f} [{low:+.1f}, {high:+.1f}]"


def main() -> None:
    parser = script_parser(__doc__, "tiny")
    add = parser.add_argument
    add("--data", default="", help="folder of Wikipedia's parts and of glue")
    add("--encoder", default="", help="folder of the encoder")
    add("--runs", default="runs/glue", help="folder of the runs and results")
    add("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    add("--tasks", nargs="*", help="some of the tasks; by default all with data")
    add("--seeds", type=int, default=5)
    add("--limit", type=int, help="the first N examples of each part")
    add("--train-limit", type=int, help="the first N training examples")
    add("--epochs", type=int, default=3)
    add("--glue-length", type=int, default=128)
    add("--steps", type=int, default=5000, help="training steps on Wikipedia")
    add("--batch", type=int, default=512, help="rows of a step on Wikipedia")
    add("--length", type=int, default=128, help="tokens of a row of Wikipedia")
    add("--lr", type=float, default=5e-5, help="learning rate, that of the paper")
    add("--ar-steps", type=int, default=5000)
    add("--ar-lr", type=float, default=1e-3, help="learning rate of the row ar")
    add("--precision", default="bf16", choices=("fp32", "bf16"))
    add("--seconds", type=float, default=float("inf"), help="start no task after this time")
    add("--texts", type=int, default=2000, help="test texts of the perplexity")
    add("--pseudo-texts", type=int, default=200)
    add("--samples", type=int, default=256, help="generated texts of a row")
    add("--draws", type=int, default=8)
    add("--speed", action="store_true", help="compare with transformers' Trainer")
    add("--speed-task", default="MRPC")
    add("--speed-runs", type=int, default=3)
    add("--judge", help="judge of the generated texts, as in unmask evaluate")
    add("--table", action="store_true", help="print the table of the results")
    args = parser.parse_args()
    if args.tiny:
        args.steps = args.ar_steps = 2
        args.batch, args.length, args.precision, args.seeds = 4, 32, "fp32", min(args.seeds, 2)
        args.texts, args.pseudo_texts, args.samples, args.draws = 4, 2, 2, 1
        args.limit, args.epochs, args.glue_length = args.limit or 16, 1, 32
        args.speed_runs = 1
    study = Study(args)
    if args.table:
        print(table(study))
        return
    if args.judge:
        judge(study, args.judge)
        return
    if args.speed:
        speed(study)
        return
    tasks = study.tasks()
    for row in args.rows:
        study.measure_text(row)
    study.measure_glue(tasks)
