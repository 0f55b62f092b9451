"""Translation with a joint row and with an encoder: BLEU, chrF, bound and seconds a sentence on Multi30k.

Six models of one width and about one size train on the same rows, side by side on one GPU. Then one model after the
other translates the test sets and measures the bound of the targets. Each figure is one JSON line. `--table FILE`
prints such lines as a table. DATA is the folder with train.de, train.en, val.de, val.en and the test files.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from machine import DEVICE, Report, machine_row, read_rows, wall_seconds

import unmask
from unmask.config.run_config import RunConfig, load_recipe, resolve
from unmask.data.load import load_data, pairs_from
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.evaluation.suites.translation import Translation, translate

SPLIT = {
    "backbone": "encoder_decoder",
    "backbone.depth": "3",
    "backbone.encoder_depth": "3",
    "backbone.condition_width": "16",  # as in the recipe
}
LIMITS = {"backbone.source_positions": "64", "backbone.target_positions": "64"}
LENGTH = {**LIMITS, "backbone.length_head": "true", "data.fill_target": "false"}
AR = {"method": "autoregressive", "data.fill_target": "false"}
SEDD = {"method": "sedd", "backbone.time_conditioning": "true"}
MODELS: dict[str, dict[str, str]] = {
    "joint MDLM": {"backbone.depth": "6"},
    "joint AR": {"backbone": "causal", "backbone.depth": "6", **AR},
    "encoder MDLM, EOS": SPLIT,
    "encoder MDLM, length": {**SPLIT, **LENGTH},
    "encoder AR": {**SPLIT, **LIMITS, "backbone.causal": "true", **AR},
    "encoder SEDD, length": {**SPLIT, **LENGTH, **SEDD},
}
SHAPE = {"width": "256", "heads": "8", "dropout": "0.2"}
TINY = {"width": "16", "heads": "2"}
TESTS = ("test_2016_flickr", "test_2017_flickr")
LONGEST = 60  # tokens of a source that is timed
FEW = "confidence:steps=4"  # a second decoding of diffusion models


def configured(name: str, options: argparse.Namespace) -> RunConfig:
    """The configuration of a model: the recipe of Multi30k, smaller and shorter."""
    shape, every = {**SHAPE, **(TINY if options.tiny else {})}, max(1, options.steps // 10)
    settings = {
        **MODELS[name],
        **{f"backbone.{field}": value for field, value in shape.items()},
        "data.train": f"{options.data}/train.{{de,en}}",
        "data.valid": f"{options.data}/val.{{de,en}}",
        "data.cache": str(options.runs / "cache"),
        "data.tokenizer.size": "500" if options.tiny else "8192",
        "training.steps": str(options.steps),
        "training.batch": str(options.batch),
        "training.lr": "1e-3",
        "training.warmup": str(max(1, options.steps // 12)),
        "training.cuda_graph": str(DEVICE.type == "cuda").lower(),
        "training.validate_every": str(every),
        "training.save_every": str(every),
        "training.sample_every": "0",
    }
    return resolve(load_recipe("multi30k"), list(settings.items()))


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
    started, seconds = time.perf_counter(), {}
    command = [sys.executable, *sys.argv, "--train"]
    logs = {name: folder(name, options).with_suffix(".log").open("w") for name in names}
    running = {
        name: subprocess.Popen([*command, name], stdout=log, stderr=subprocess.STDOUT)
        for name, log in logs.items()
    }
    while running:
        time.sleep(0.2)
        spent = time.perf_counter() - started
        for name, process in list(running.items()):
            if process.poll() is not None:
                seconds[name] = spent
                del running[name]
            elif spent > options.seconds:
                process.send_signal(signal.SIGINT)  # the run saves its state
                process.wait(30)
    return seconds


def decodings(model: unmask.Model) -> Iterator[tuple[str, dict[str, Any]]]:
    """The ways to translate, by name."""
    if model.method.capabilities.causal:
        yield "greedy", {}
        return
    yield "one token a step", {}
    yield "4 steps", {"sampler": FEW}
    if not model.method.backbone.predicts_length:
        yield "one token a step, EOS free", {"ending": "free"}


def seconds(model: unmask.Model, sources: list[str], batch: int, found: Translation) -> float:
    """Seconds a sentence, after a run that captures the CUDA graphs."""
    work = partial(model.generate, sources, batch=batch, **found.decoding)
    work()
    return wall_seconds(work) / len(sources)


def measured(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The figures of a model: size, bound and translations."""
    model = unmask.load(folder(name, options))
    own = {"model": name, "parameters": sum(each.numel() for each in model.method.parameters())}
    for test in TESTS:
        source = f"{options.data}/{test}.{{de,en}}"
        pairs = list(pairs_from(source, model.config.data))[: options.sources]
        bound = model.perplexity([(pair.source, str(pair)) for pair in pairs], draws=4, batch=256)
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
            found = translate(model, source, sources=options.sources, batch=256, **chosen)
            short = [each for each in found.sources if len(model.tokenizer.encode(each)) <= LONGEST]
            yield {
                **own,
                "row": "translation",
                "test": test,
                "how": decoding,
                **found.to_dict(),
                "seconds": seconds(model, short, 256, found),
                "alone": None if "ending" in chosen else seconds(model, short[:20], 1, found),
                "words": sum(len(text.split()) for text in found.hypotheses),
                "reference_words": sum(len(own[0].split()) for own in found.references),
                "first": found.hypotheses[:3],
            }


def table(file: Path) -> Iterator[str]:
    """The lines of a file as a table, one row for each model and decoding on the first test set."""
    rows = read_rows(file)
    bounds = {
        row["model"]: row for row in rows if row["row"] == "bound" and row["test"] == TESTS[0]
    }
    both = {
        (row["model"], row["how"], row["test"]): row for row in rows if row["row"] == "translation"
    }
    yield "| model | parameters | perplexity | decoding | BLEU 2016 | chrF | BLEU 2017 | words | calls | ms, B = 256 | ms, B = 1 |"
    yield "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|"
    for (model, how, test), row in both.items():
        if test != TESTS[0]:
            continue
        bound, other = bounds[model], both.get((model, how, TESTS[1]))
        sign = "" if bound["certificate"] == "exact" else "≤ "
        alone = "" if row["alone"] is None else f"{1e3 * row['alone']:.1f}"
        second = f"{other['score']:.1f}" if other else ""
        yield (
            f"| {model} | {row['parameters'] / 1e6:.1f}M | {sign}{bound['perplexity']:.2f} | {how} "
            f"| {row['score']:.1f} [{row['low']:.1f}, {row['high']:.1f}] | {row['chrf']:.1f} | {second} "
            f"| {row['words'] / row['reference_words']:.2f} | {row['calls']:.1f} "
            f"| {1e3 * row['seconds']:.2f} | {alone} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("multi30k"))
    parser.add_argument("--runs", type=Path, default=Path("runs/encoder-decoder"))
    parser.add_argument("--out", type=Path, default=None, help="file for the lines")
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--sources", type=int, default=1000, help="sentences of each test set")
    parser.add_argument("--seconds", type=float, default=1e9, help="most time of training")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--train", choices=MODELS, help="trains one model and stops")
    parser.add_argument("--table", type=Path, default=None, help="prints the lines of a file")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table(options.table)))
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


if __name__ == "__main__":
    main()
