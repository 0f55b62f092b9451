"""Pairs with a joint row and with an encoder: BLEU, chrF, bound and seconds a target on Multi30k and E2E.

    python benchmarks/pairs encoder_decoder --task multi30k --data multi30k --out encoder.jsonl
    python benchmarks/pairs encoder_decoder --score encoder.jsonl --out scored.jsonl
    python benchmarks/pairs encoder_decoder --table scored.jsonl

Six models of one width and about one size train on the same rows, side by side on one GPU. Then one model after the
other writes the targets of the test sets and measures their bound. DATA is the folder with the files of the recipe.
Each figure is one JSON line, and the targets are saved. `--score` adds BLEU and chrF, and the differences of BLEU
between a length head and a free EOS. It needs sacrebleu and no GPU.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import unmask
from benchmarks.limited import side_by_side
from benchmarks.machine import DEVICE, machine_row, wall_seconds
from benchmarks.room import again, script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.config.run_config import RunConfig, load_recipe, resolve
from unmask.data.load import load_data, pairs_from
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.generation.sampler_spec import DECODING


class Task(NamedTuple):
    """Pairs: the files, tokens of a vocabulary, and most tokens of a target with its EOS."""

    train: str
    valid: str
    tests: tuple[str, ...]
    vocabulary: int
    target: int


TASKS = {
    "multi30k": Task(
        "train.{de,en}",
        "val.{de,en}",
        ("test_2016_flickr.{de,en}", "test_2017_flickr.{de,en}"),
        8192,
        64,
    ),
    "e2e": Task("trainset.csv", "devset.csv", ("testset_w_refs.csv",), 2048, 112),
}
SPLIT = {"backbone": "encoder_decoder", "backbone.condition_width": "16"}  # as in the recipe
LIMITS = {"backbone.source_positions": "64"}
LENGTH = {**LIMITS, "backbone.length_head": "true", "data.fill_target": "false"}
AR = {"method": "autoregressive", "data.fill_target": "false"}
SEDD = {"method": "sedd", "backbone.time_conditioning": "true"}
MODELS: dict[str, dict[str, str]] = {
    "joint MDLM": {},
    "joint AR": {"backbone": "causal", **AR},
    "encoder MDLM, EOS": SPLIT,
    "encoder MDLM, length": {**SPLIT, **LENGTH},
    "encoder AR": {**SPLIT, **LIMITS, "backbone.causal": "true", **AR},
    "encoder SEDD, length": {**SPLIT, **LENGTH, **SEDD},
}
LONGEST = 62  # tokens of a source without BOS and EOS; the target of a longer one counts as empty
ONE, FEW_STEPS = "one token a step", "4 steps"


def configured(name: str, options: argparse.Namespace) -> RunConfig:
    """The configuration of a model: the recipe of the task, smaller and shorter."""
    task, every = TASKS[options.task], max(1, options.steps // 5)
    own = MODELS[name]
    shape = {"depth": options.depth}
    if own.get("backbone") == "encoder_decoder":
        shape = {"depth": options.depth // 2, "encoder_depth": options.depth // 2}
        if LIMITS.items() <= own.items():
            shape["target_positions"] = task.target
    heads = max(1, options.width // 32)
    shape |= {"width": options.width, "heads": heads, "dropout": options.dropout}
    settings = {
        **own,
        **{f"backbone.{field}": value for field, value in shape.items()},
        "data.train": options.data / task.train,
        "data.valid": options.data / task.valid,
        "data.cache": options.runs / "cache",
        "data.tokenizer.size": options.vocabulary or task.vocabulary,
        "training.steps": options.steps,
        "training.batch": options.batch,
        "training.optimizer": options.optimizer,
        "training.lr": 1e-3,
        "training.muon_lr": 0.01,
        "training.ema": 0.99,
        "training.warmup": max(1, options.steps // 12),
        "training.cuda_graph": str(DEVICE.type == "cuda").lower(),
        "training.validate_every": every,
        "training.validation_rows": 256,
        "training.save_every": every,
        "training.sample_every": 0,
    }
    return resolve(
        load_recipe(options.task), [(key, str(value)) for key, value in settings.items()]
    )


def folder(name: str, options: argparse.Namespace) -> Path:
    """The run folder of a model."""
    return Path(options.runs, name.replace(",", "").replace(" ", "-"))


def train(name: str, options: argparse.Namespace) -> None:
    """Trains a model with the tokenizer that all models share."""
    tokenizer = load_tokenizer(options.runs / "tokenizer")
    unmask.train(configured(name, options), folder(name, options), tokenizer=tokenizer)


def train_all(names: list[str], options: argparse.Namespace) -> dict[str, float]:
    """Trains the models side by side and stops them when the time is up. Returns the seconds of each."""
    data = load_data(configured("joint MDLM", options).data)  # the rows are cached for all
    data.tokenizer.save(options.runs / "tokenizer")
    train = [*again(__file__), *sys.argv[1:], "--train"]
    found = side_by_side(
        {name: [*train, name] for name in names},
        lambda name: folder(name, options).with_suffix(".log"),
        seconds=options.seconds,
    )
    return {name: seconds for name, _, seconds in found}


def decodings(model: unmask.Model) -> Iterator[tuple[str, dict[str, Any]]]:
    """The ways to translate, by name."""
    if model.method.capabilities.causal:
        yield "greedy", {}
        return
    first = {} if model.method.backbone.predicts_length else {"ending": "first"}
    yield ONE, first
    yield FEW_STEPS, {"sampler": "confidence:steps=4", **first}
    if first:
        yield f"{ONE}, EOS free", {"ending": "free"}


def timed(work: Callable[[], list[Any]]) -> tuple[list[Any], float]:
    """The result of some work, and its seconds."""
    found: list[Any] = []
    seconds = wall_seconds(lambda: found.extend(work()))
    return found, seconds


def measured(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The figures of a model: size, bound and targets."""
    model = unmask.load(folder(name, options))
    own = {"model": name, "parameters": sum(each.numel() for each in model.method.parameters())}
    for test in TASKS[options.task].tests:
        targets: dict[str, list[str]] = {}  # of each source
        for pair in pairs_from(str(options.data / test), model.config.data):
            targets.setdefault(pair.source, []).append(str(pair))
        references = dict(islice(targets.items(), options.sources))
        fitting = [one for one in references if len(model.tokenizer.encode(one)) <= LONGEST]
        pairs = [(source, references[source][0]) for source in fitting]
        bound = model.perplexity(pairs, draws=4, batch=256)
        yield {
            **own,
            "row": "bound",
            "test": test,
            "nats": bound.nats,
            "error": bound.error,
            "perplexity": bound.perplexity,
            "certificate": bound.certificate,
        }
        for decoding, chosen in decodings(model):
            settings = {**DECODING[model.method.capabilities.causal], **chosen}
            write = partial(model.generate, batch=256, **settings)
            results, took = timed(partial(write, fitting))
            if DEVICE.type == "cuda":  # the first run captured the CUDA graphs
                _, took = timed(partial(write, fitting))
            by_source = dict(zip(fitting, results, strict=True))
            some, alone = fitting[:20], None
            if chosen.get("ending") != "free":
                write(some, batch=1)  # captures the CUDA graphs
                alone = timed(partial(write, some, batch=1))[1] / len(some)
            yield {
                **own,
                "row": "targets",
                "test": test,
                "how": decoding,
                "calls": sum(result.calls for result in results) / len(results),
                "seconds": took / len(fitting),
                "alone": alone,
                "sources": len(references),
                "hypotheses": [str(by_source.get(source, "")) for source in references],
                "references": list(references.values()),
            }


def scored(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, with scores in place of targets, and differences of BLEU."""
    from unmask.extensions.pairs.bleu import bleu, chrf

    rows = read_rows(file)
    for row in rows:
        if row["row"] == "targets":
            texts = row["hypotheses"], row["references"]
            score = bleu(*texts).to_dict()
            words = sum(len(text.split()) for text in texts[0])
            wanted = sum(sum(len(each.split()) for each in own) / len(own) for own in texts[1])
            rest = {
                key: value for key, value in row.items() if key not in ("hypotheses", "references")
            }
            more = {"chrf": chrf(*texts), "words": words, "reference_words": wanted}
            yield {**rest, **score, **more, "first": texts[0][:3]}
        else:
            yield row
    found = {
        (row["test"], row["model"], row["how"]): row for row in rows if row["row"] == "targets"
    }
    for (test, model, how), row in found.items():
        if model == "encoder MDLM, EOS" and how != FEW_STEPS:
            other = found.get((test, "encoder MDLM, length", ONE))
            if other:
                yield {"row": "gain", "test": test, "against": how, **gain(other, row)}


def gain(ours: dict[str, Any], other: dict[str, Any], draws: int = 300) -> dict[str, Any]:
    """The difference of BLEU between two sets of targets, with a bootstrap interval over the same sources."""
    from sacrebleu.metrics import BLEU

    references, metric, values = ours["references"], BLEU(), []
    most = max(map(len, references))
    streams = [[own[i] if i < len(own) else None for own in references] for i in range(most)]
    generator = np.random.default_rng(0)
    for draw in range(draws + 1):
        n = len(references)
        index = generator.integers(n, size=n) if draw else np.arange(n)
        chosen = [[stream[i] for i in index] for stream in streams]
        pair = [
            metric.corpus_score([row["hypotheses"][i] for i in index], chosen).score
            for row in (ours, other)
        ]
        values.append(pair[0] - pair[1])
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return {"difference": values[0], "low": float(low), "high": float(high), "sources": n}


def table(files: list[Path]) -> Iterator[str]:
    """The lines of a file as a table, one row for each model and decoding on the first test set."""
    rows = read_rows(*files)
    targets = [row for row in rows if row["row"] == "targets"]
    tests = list(dict.fromkeys(row["test"] for row in targets))
    bounds = {
        row["model"]: row for row in rows if row["row"] == "bound" and row["test"] == tests[0]
    }
    both = {(row["model"], row["how"], row["test"]): row for row in targets}
    second = ["BLEU, second test set"] if len(tests) > 1 else []
    head = ["model", "parameters", "perplexity", "decoding", "BLEU", "chrF", *second]
    head += ["words of the references'", "calls", "ms, B = 256", "ms, B = 1"]
    lines = []
    for (model, how, test), row in both.items():
        if test != tests[0]:
            continue
        bound = bounds[model]
        sign = "" if bound["certificate"] == "exact" else "≤ "
        others = [both.get((model, how, each)) for each in tests[1:]]
        cells = [model, f"{row['parameters'] / 1e6:.1f}M", f"{sign}{bound['perplexity']:.2f}", how]
        cells += [f"{row['score']:.1f} [{row['low']:.1f}, {row['high']:.1f}]", f"{row['chrf']:.1f}"]
        cells += ["–" if other is None else f"{other['score']:.1f}" for other in others]
        cells += [f"{row['words'] / row['reference_words']:.2f}", f"{row['calls']:.1f}"]
        seconds, alone = row.get("seconds"), row.get("alone")
        cells += ["" if seconds is None else f"{1e3 * seconds:.2f}"]
        cells += ["" if alone is None else f"{1e3 * alone:.1f}"]
        lines.append(cells)
    yield from markdown(head, lines, left=(0, 3))
    for row in rows:
        if row["row"] == "gain":
            interval = f"{row['difference']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]"
            yield f"\nBLEU of the length head less that of EOS, {row['against']}, {row['test']}: {interval}"


def main() -> None:
    parser = script_parser(__doc__, "out", "table", "tiny")
    add = parser.add_argument
    add("--task", choices=TASKS, default="multi30k")
    add("--data", type=Path, default=Path("multi30k"))
    add("--runs", type=Path, default=Path("runs/encoder-decoder"))
    add("--only", nargs="+", choices=MODELS, default=list(MODELS))
    add("--steps", type=int, default=2400)
    add("--batch", type=int, default=256)
    add("--sources", type=int, default=1000, help="sentences of each test set")
    add("--seconds", type=float, default=1e9, help="most time of training")
    add("--width", type=int, default=256, help="width of the networks")
    add("--depth", type=int, default=6, help="blocks, even; an encoder has half")
    add("--dropout", type=float, default=0.2)
    add("--vocabulary", type=int, help="tokens of the vocabulary")
    add("--optimizer", default="adamw", help="adamw or muon")
    add("--train", choices=MODELS, help="trains one model and stops")
    add("--score", type=Path, default=None, help="scores the lines of a file")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table(options.table)))
        return
    if options.tiny:
        vars(options).update(width=32, depth=2, vocabulary=500)
    if options.score:
        report = Report(options.out)
        for row in scored(options.score):
            report.write(row)
        return
    if options.train:
        train(options.train, options)
        return
    options.runs.mkdir(parents=True, exist_ok=True)
    report = Report(options.out)
    report.write(machine_row(options.tiny))
    for name, seconds in train_all(options.only, options).items():
        report.write({"row": "training", "model": name, "seconds": seconds})
    for name in options.only:
        try:
            for row in measured(name, options):
                report.write(row)
        except Exception as error:
            report.write({"row": "error", "model": name, "error": repr(error)})
