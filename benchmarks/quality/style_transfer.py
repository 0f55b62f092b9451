"""Style transfer on sentences of IMDB: accuracy of the style, similarity to the source, and fluency.

    python benchmarks/quality style_transfer --prepare sentences --text imdb
    python benchmarks/quality style_transfer --data sentences --train         # the only part that needs a GPU
    python benchmarks/quality style_transfer --data sentences --out style.jsonl
    python benchmarks/quality style_transfer --score style.jsonl --judge JUDGE --encoder ENCODER --out scored.jsonl
    python benchmarks/quality style_transfer --table scored.jsonl --plot style.png

`--prepare FOLDER --text IMDB` cuts reviews into sentences. One half of the training reviews trains a labelled MDLM,
which rewrites. The other half trains a classifier of sentences. Models that exist are not trained again. Sentences of
the test reviews are rewritten in the other style, with tokens chosen by attribution or at random, for several shares
and guidance weights. Weight 0 is the control: delete and refill without guidance. The texts are saved. `--score` adds
BLEU to the source, the cosine of an encoder to the source, bits per byte of a judge, and a second classifier: a linear
head on the encoder's vectors.
"""

import argparse
import json
import multiprocessing
import random
import re
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unmask
from benchmarks.machine import DEVICE, machine_row
from benchmarks.pictures import picture
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.config.run_config import RunConfig, resolve
from unmask.data.load import load_data
from unmask.evaluation.judges.judge import Sample
from unmask.evaluation.judges.load_judge import causal_judge
from unmask.evaluation.metrics.bootstrap import mean, share
from unmask.evaluation.metrics.text_quality import measure
from unmask.extensions.pairs.bleu import bleu
from unmask.representation.classifier import classify

STYLES = ("negative", "positive")
WORDS = range(6, 25)  # number of words of a sentence
SHARES, WEIGHTS = (0.15, 0.3, 0.5), (0.0, 1.0, 2.0, 4.0)
SURE = 0.8  # probability of the style of a source; many sentences of a review have none
LABELLED = {"data.label_field": "label"}
CLASSIFIER_STEPS = 600  # after 600 steps of 256 sentences its held-out loss rises
MODELS = {  # name: training file and settings
    "writer": ("writer", {**LABELLED, "method": "mdlm", "data.label_dropout": "0.2"}),
    "classifier": ("judge", {**LABELLED, "method": "sequence_classifier"}),
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
    steps = min(options.steps, CLASSIFIER_STEPS) if name == "classifier" else options.steps
    settings = {
        **own,
        "backbone": "modern_dit",
        "backbone.width": options.width,
        "backbone.depth": options.depth,
        "backbone.heads": max(1, options.width // 32),
        "backbone.dropout": 0.1,
        "data.train": options.data / f"{file}.jsonl",
        "data.holdout": 0.01,
        "data.cache": options.runs / "cache",
        "data.packing": "pad",
        "data.length": 48,
        "data.tokenizer.kind": "bpe",
        "data.tokenizer.size": options.vocabulary,
        "training.steps": steps,
        "training.batch": options.batch,
        "training.optimizer": "muon",
        "training.lr": 3e-3,
        "training.muon_lr": 0.01,
        "training.warmup": max(1, steps // 20),
        "training.decay": "linear",
        "training.precision": "auto",
        "training.ema": 0.99,
        "training.validate_every": max(1, steps // 5),
        "training.validation_rows": 512,
        "training.save_every": steps,
        "training.sample_every": 0,
        "training.cuda_graph": str(DEVICE.type == "cuda").lower(),
    }
    return resolve({}, [(key, str(value)) for key, value in settings.items()])


def train_all(options: argparse.Namespace) -> None:
    """Trains the models that are missing, one after the other, with one tokenizer, and saves them."""
    tokenizer = None
    for name in MODELS:
        if not (options.runs / name / "model.json").exists():
            config = configured(name, options)
            tokenizer = tokenizer or load_data(configured("writer", options).data).tokenizer
            model = unmask.train(config, options.runs / f"{name}-run", tokenizer=tokenizer)
            model.save(options.runs / name, precision="bf16")


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The texts and the accuracy of each choice of tokens, share and weight, over all sentences."""
    classifier = unmask.load(options.runs / "classifier")
    records = _records(options.data / "test.jsonl", 10 * options.sentences)
    found = classify(classifier, [record["text"] for record in records])
    pairs = list(zip(found, records, strict=True))
    right = [each.label == record["label"] for each, record in pairs]
    yield {"row": "judge", "sentences": len(records), **_interval("accuracy", share(right))}
    # only sentences whose style the classifier recognises, because for the others a change cannot be measured
    known = [
        record
        for each, record in pairs
        if each.label == record["label"] and each.score >= (0 if options.tiny else SURE)
    ]
    chosen = known[: options.sentences]
    sources = [record["text"] for record in chosen]
    yield {"row": "sources", "n": len(sources), "texts": sources}
    jobs = [(options.runs, chosen, *job) for job in product(("attribution", "random"), SHARES)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, context) as pool:
        for rows in pool.map(edited, jobs):
            yield from rows


def edited(job: tuple[Path, list[dict[str, str]], str, float]) -> list[dict[str, Any]]:
    """Texts with the other style for one choice of tokens and one share, by guidance weight."""
    runs, chosen, choice, part = job
    writer, classifier = (unmask.load(runs / name) for name in MODELS)
    rows = []
    for weight in WEIGHTS:
        started, results = time.perf_counter(), []
        for seed, record in enumerate(chosen):
            style = STYLES[record["label"] == STYLES[0]]
            how = "remask_style" if choice == "attribution" else "remask"
            settings = {how: part, "guidance": weight, "sampler": "confidence", "steps": 8}
            settings |= {"temperature": 0.7, "seed": seed}
            results += writer.edit(record["text"], style=style, **settings)
        seconds = time.perf_counter() - started
        texts = [result.text for result in results]
        kinds = [each.label for each in classify(classifier, texts)]
        hits = [a != b["label"] for a, b in zip(kinds, chosen, strict=True)]
        row = {"row": "edit", "choice": choice, "share": part, "weight": weight, "n": len(texts)}
        row |= {**_interval("accuracy", share(hits)), "seconds": seconds / len(texts)}
        rows.append({**row, "texts": texts})
    return rows


def _interval(name: str, figure: Any) -> dict[str, float]:
    return {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}


class Encoder:
    """Vectors of sentences, and a classifier of them that the judge's sentences train."""

    def __init__(self, options: argparse.Namespace) -> None:
        from sklearn.linear_model import LogisticRegression

        self.model = unmask.load(options.encoder)
        records = _records(options.data / "judge.jsonl", options.judged)
        vectors = self.vectors([record["text"] for record in records])
        self.head = LogisticRegression(C=10.0, max_iter=1000)
        self.head.fit(vectors, [record["label"] for record in records])

    def vectors(self, texts: list[str]) -> np.ndarray:
        """Unit vectors of texts."""
        return np.asarray(self.model.embed(texts, pooling="mean", normalize=True))

    def styles(self, vectors: np.ndarray) -> np.ndarray:
        """The style of each vector."""
        return self.head.predict(vectors)


def scored(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of a file, those of texts with BLEU, cosine and bits of the judge in place of most texts.

    The encoder is a second judge of the style, over the sources whose style it recognises.
    """
    reader, encoder = causal_judge(str(options.judge), torch.device("cpu")), Encoder(options)
    test = _records(options.data / "test.jsonl", options.judged // 4)
    labels = {record["text"]: record["label"] for record in test}
    right = encoder.styles(encoder.vectors(list(labels))) == list(labels.values())
    yield {"row": "encoder", "sentences": len(labels), **_interval("accuracy", share(list(right)))}
    rows = read_rows(options.score)
    [sources] = [row["texts"] for row in rows if row["row"] == "sources"]
    before = encoder.vectors(sources)
    wanted = {record["text"]: record["label"] for record in _records(options.data / "test.jsonl")}
    own = np.array([wanted[source] for source in sources])
    known = encoder.styles(before) == own
    for row in rows:
        if "texts" in row:
            texts = row.pop("texts")
            score = bleu(texts, [[source] for source in sources])
            after = encoder.vectors(texts)
            changed = (encoder.styles(after) != own)[known]
            quality = measure([Sample([], text) for text in texts], reader)
            row |= {"bleu": score.score, "bleu_low": score.low, "bleu_high": score.high}
            row |= _interval("cosine", mean((before * after).sum(1).tolist()))
            row |= {**_interval("second", share(changed.tolist())), "known": int(known.sum())}
            row |= {**_interval("bits", quality.bits_per_byte), "first": texts[:3]}
        yield row


def _records(file: Path, most: int | None = None) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()[:most]]


def table(files: list[Path]) -> Iterator[str]:
    """The lines of a file as a table, with 95% intervals."""
    head = ["tokens by", "share", "guidance", "changed style, %", "by the encoder, %"]
    head += ["BLEU to the source", "cosine", "bits per byte"]
    lines = []
    for row in read_rows(*files):
        if row["row"] == "sources" and "bleu" in row:
            lines.append(["sources", *[""] * 6, _cell(row, "bits")])
        if row["row"] == "edit":
            weight = f"{row['weight']:g}" if row["weight"] else "none: control"
            cells = [_cell(row, "accuracy", 100, 0), _cell(row, "second", 100, 0)]
            cells += [_cell(row, "bleu", 1, 0), _cell(row, "cosine"), _cell(row, "bits")]
            lines.append([row["choice"], f"{row['share']:.2f}", weight, *cells])
    yield from markdown(head, lines, left=(0, 2))


def _cell(row: dict[str, Any], name: str, scale: float = 1, digits: int = 2) -> str:
    if name not in row:
        return "–"
    value, low, high = (
        f"{scale * row[f'{name}{end}']:.{digits}f}" for end in ("", "_low", "_high")
    )
    return f"{value} [{low}, {high}]"


def draw(files: list[Path], file: Path) -> None:
    """Draws the trade-off: accuracy of the style against the cosine to the source."""
    rows = [row for row in read_rows(*files) if row["row"] == "edit"]
    with picture(file, (9, 4), 1, 2, dpi=120, sharex=True, sharey=True) as (_, panels):
        for axes, choice in zip(panels, ("attribution", "random"), strict=True):
            for weight in WEIGHTS:
                mine = [row for row in rows if (row["choice"], row["weight"]) == (choice, weight)]
                y = np.array([row["accuracy"] for row in mine])
                ends = np.array([[row["accuracy_low"], row["accuracy_high"]] for row in mine]).T
                name = f"guidance {weight:g}" if weight else "no guidance: control"
                style = {} if weight else {"color": "black", "linestyle": "--"}
                x = [row["cosine"] for row in mine]
                axes.errorbar(x, y, np.abs(ends - y), marker="o", capsize=2, label=name, **style)
            title = "random tokens" if choice == "random" else f"tokens by {choice}"
            axes.set(title=title, xlabel="cosine to the source")
        panels[0].set_ylabel("share with the new style")
        panels[0].legend(frameon=False, fontsize=9)


def main() -> None:
    parser = script_parser(__doc__, "out", "table", "plot", "tiny")
    add = parser.add_argument
    add("--prepare", type=Path, default=None, help="folder for the sentences")
    add("--text", type=Path, default=None, help="folder of the reviews")
    add("--most", type=int, default=100_000, help="sentences of a part")
    add("--data", type=Path, default=Path("sentences"))
    add("--runs", type=Path, default=Path("runs/style"))
    add("--steps", type=int, default=3000)
    add("--batch", type=int, default=256)
    add("--width", type=int, default=256, help="width of the networks")
    add("--depth", type=int, default=6, help="blocks of the networks")
    add("--vocabulary", type=int, default=4096, help="tokens of the vocabulary")
    add("--sentences", type=int, default=100, help="sentences to rewrite")
    add("--processes", type=int, default=1, help="processes that rewrite")
    add("--train", action="store_true", help="trains the models and stops")
    add("--score", type=Path, default=None, help="scores the texts of a file")
    add("--judge", type=Path, default=None, help="a language model for --score")
    add("--encoder", type=Path, default=None, help="an encoder for --score")
    add("--judged", type=int, default=4000, help="sentences that train its head")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table(options.table)))
        if options.plot:
            draw(options.table, options.plot)
        return
    if options.tiny:
        vars(options).update(width=32, depth=1, vocabulary=500)
    if options.score:
        report = Report(options.out)
        for row in scored(options):
            report.write(row)
        return
    if options.prepare:
        prepare(options)
        return
    train_all(options)
    if options.train:
        return
    report = Report(options.out)
    report.write(machine_row(options.tiny))
    for row in measured(options):
        report.write(row)
