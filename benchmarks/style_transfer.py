"""Style transfer on sentences of IMDB: accuracy of the style, similarity to the source, and fluency.

`--prepare FOLDER --text IMDB` cuts reviews into sentences. One half of the training reviews trains a labelled MDLM,
which rewrites. The other half trains the judges: a classifier of sentences and an autoregressive model. Sentences of
the test reviews are rewritten in the other style, with tokens chosen by attribution or at random, for several shares
and guidance weights. Weight 0 is the control: delete and refill without guidance. `--table FILE` prints the lines.
"""

import argparse
import json
import math
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import DEVICE, Report, machine_row, read_rows

import unmask
from unmask.config.run_config import RunConfig, resolve
from unmask.data.load import load_data
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.evaluation.metrics.bleu import bleu
from unmask.representation.classifier import classify

STYLES = ("negative", "positive")
WORDS = range(6, 25)  # number of words of a sentence
SHARES, WEIGHTS = (0.15, 0.3, 0.5), (0.0, 1.0, 2.0, 4.0)
LABELLED = {"data.label_field": "label"}
MODELS = {  # name: training file and settings
    "writer": ("writer", {**LABELLED, "method": "mdlm", "data.label_dropout": "0.2"}),
    "classifier": ("judge", {**LABELLED, "method": "sequence_classifier"}),
    "language": ("judge", {"method": "autoregressive", "backbone": "causal"}),
}


def sentences(review: str) -> Iterator[str]:
    """The sentences of a review of the wanted length."""
    text = re.sub(r"\s+", " ", review.replace("<br />", " "))
    for sentence in re.split(r"(?<=[.!?]) +", text):
        if len(sentence.split()) in WORDS:
            yield sentence.strip()


def prepare(options: argparse.Namespace) -> None:
    """Writes writer.jsonl, judge.jsonl and test.jsonl from files such as train_pos.txt with one review per line."""
    options.prepare.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[dict[str, str]]] = {"writer": [], "judge": [], "test": []}
    for file in sorted(options.text.rglob("*")):
        found = re.search(r"(train|test).*(pos|neg)", file.stem)
        if not file.is_file() or not found:
            continue
        part_of, mood = found.groups()
        label = STYLES[mood == "pos"]
        for number, review in enumerate(file.read_text("utf-8").splitlines()):
            part = "test" if part_of == "test" else ("writer", "judge")[number % 2]
            parts[part] += [{"label": label, "text": text} for text in sentences(review)]
    chance = random.Random(0)
    for name, records in parts.items():
        chance.shuffle(records)
        lines = (json.dumps(record) + "\n" for record in records[: options.most])
        (options.prepare / f"{name}.jsonl").write_text("".join(lines), "utf-8")
        print(f"{name}: {len(records):,} sentences")


def configured(name: str, options: argparse.Namespace) -> RunConfig:
    """The configuration of a model."""
    file, own = MODELS[name]
    shape = {"width": "16", "depth": "1", "heads": "2"} if options.tiny else {}
    settings = {
        **own,
        **{f"backbone.{field}": value for field, value in {"width": "256", "depth": "6"}.items()},
        "backbone.heads": "8",
        "backbone.dropout": "0.1",
        **{f"backbone.{field}": value for field, value in shape.items()},
        "data.train": str(options.data / f"{file}.jsonl"),
        "data.valid": str(options.data / "test.jsonl"),
        "data.cache": str(options.runs / "cache"),
        "data.packing": "pad",
        "data.length": "48",
        "data.tokenizer.kind": "bpe",
        "data.tokenizer.size": "500" if options.tiny else "4096",
        "training.steps": str(options.steps),
        "training.batch": str(options.batch),
        "training.lr": "1e-3",
        "training.warmup": str(max(1, options.steps // 20)),
        "training.decay": "cosine",
        "training.precision": "auto",
        "training.ema": "0.999",
        "training.validate_every": str(max(1, options.steps // 5)),
        "training.save_every": str(options.steps),
        "training.cuda_graph": str(DEVICE.type == "cuda").lower(),
    }
    return resolve({}, list(settings.items()))


def train_all(options: argparse.Namespace) -> None:
    """Trains the models side by side, with one tokenizer."""
    load_data(configured("writer", options).data).tokenizer.save(options.runs / "tokenizer")
    command = [sys.executable, *sys.argv, "--train"]
    running = [subprocess.Popen([*command, name]) for name in MODELS]
    for process in running:
        process.wait()


def nats(model: unmask.Model, texts: list[str]) -> float:
    """Nats per token of texts under an autoregressive model."""
    return model.perplexity(texts, packing="pad", batch=256).nats


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The figures of each choice of tokens, share and weight, over all sentences."""
    writer, classifier, language = (unmask.load(options.runs / name) for name in MODELS)
    lines = (options.data / "test.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines[: 20 * options.sentences]]
    labels = [each.label for each in classify(classifier, [record["text"] for record in records])]
    right = [label == record["label"] for label, record in zip(labels, records, strict=True)]
    yield {"row": "judge", "sentences": len(records), "accuracy": statistics.mean(right)}
    # only sentences whose style the judge recognises, because for the others a change cannot be measured
    known = [record for record, fine in zip(records, right, strict=True) if fine]
    chosen = known[: options.sentences]
    sources = [record["text"] for record in chosen]
    yield {"row": "sources", "sentences": len(sources), "nats": nats(language, sources)}
    before = language.embed(sources, normalize=True)
    for choice in ("attribution", "random"):
        for share in SHARES:
            for weight in WEIGHTS:
                started, edited = time.perf_counter(), []
                for record in chosen:
                    style = STYLES[record["label"] == STYLES[0]]
                    how = "remask_style" if choice == "attribution" else "remask"
                    settings = {how: share, "guidance": weight, "sampler": "confidence", "steps": 8}
                    edited += writer.edit(record["text"], style=style, temperature=0.7, **settings)
                seconds = time.perf_counter() - started
                texts = [result.text for result in edited]
                kinds = [each.label for each in classify(classifier, texts)]
                hits = [a != b["label"] for a, b in zip(kinds, chosen, strict=True)]
                accuracy = statistics.mean(hits)
                score = bleu(texts, [[source] for source in sources])
                cosine = (before * language.embed(texts, normalize=True)).sum(1)
                yield {
                    "row": "edit",
                    "choice": choice,
                    "share": share,
                    "weight": weight,
                    "accuracy": accuracy,
                    "n": len(texts),
                    "bleu": score.score,
                    "bleu_low": score.low,
                    "bleu_high": score.high,
                    "accuracy_error": math.sqrt(accuracy * (1 - accuracy) / len(texts)),
                    "cosine": float(np.mean(cosine)),
                    "nats": nats(language, texts),
                    "seconds": seconds / len(texts),
                    "first": [*sources[:2], *texts[:2]],
                }


def table(file: Path) -> Iterator[str]:
    """The lines of a file as a table."""
    yield "| tokens by | share | guidance | style accuracy | BLEU to the source | cosine | nats a token |"
    yield "|---|---:|---|---:|---:|---:|---:|"
    for row in read_rows(file):
        if row["row"] != "edit":
            continue
        weight = f"{row['weight']:g}" if row["weight"] else "none: control"
        yield (
            f"| {row['choice']} | {row['share']:.2f} | {weight} "
            f"| {100 * row['accuracy']:.1f} ± {196 * row['accuracy_error']:.1f}% "
            f"| {row['bleu']:.1f} | {row['cosine']:.3f} | {row['nats']:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prepare", type=Path, default=None, help="folder for the sentences")
    parser.add_argument("--text", type=Path, default=None, help="folder of the reviews")
    parser.add_argument("--most", type=int, default=100_000, help="sentences of a part")
    parser.add_argument("--data", type=Path, default=Path("sentences"))
    parser.add_argument("--runs", type=Path, default=Path("runs/style"))
    parser.add_argument("--out", type=Path, default=None, help="file for the lines")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--sentences", type=int, default=100, help="sentences to rewrite")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--train", choices=MODELS, help="trains one model and stops")
    parser.add_argument("--table", type=Path, default=None, help="prints the lines of a file")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table(options.table)))
        return
    if options.prepare:
        prepare(options)
        return
    if options.train:
        tokenizer = load_tokenizer(options.runs / "tokenizer")
        config = configured(options.train, options)
        unmask.train(config, options.runs / options.train, tokenizer=tokenizer)
        return
    options.runs.mkdir(parents=True, exist_ok=True)
    report = Report(options.out)
    report.write(machine_row(options.tiny))
    train_all(options)
    for row in measured(options):
        report.write(row)


if __name__ == "__main__":
    main()
