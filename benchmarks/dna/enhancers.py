"""Enhancers by cell type: sequences of 200 bases that a class-conditional model writes, against real ones.

    python benchmarks/dna enhancers --data human-200bp-4celltypes.tsv.xz --runs runs/enhancers --out rows.jsonl
    python benchmarks/dna enhancers --table rows.jsonl

The data has three disjoint parts. The model trains on two thirds of `training`, the oracle classifier on the other
third. `validation` and `test` are the real sequences of every comparison. The oracle is a convolutional network that
reads both strands. It keeps the epoch with the least loss on a tenth of its own third. It trains before the model and
is saved as `oracle.safetensors` in the folder of the run, from which a resumed run loads it.

The script writes one JSON line for each guidance weight and cell type, with all cell types at weight 1 first:

- `oracle`: share of sequences that the oracle assigns to their cell type, beside that of real ones (`oracle_real`).
  `oracle_real_balanced` is the mean of the latter over the cell types;
- `oracle_probability`, `oracle_probability_real`: mean probability of their cell type under the oracle;
- `oracle_answers`, `oracle_answers_real`: shares of all cell types among the answers, a row of the confusion matrix;
- `kmer_js`: Jensen-Shannon divergence in bits of the 6-mer spectra, beside that of two real halves (`kmer_js_real`);
- `gc`, `gc_real`: mean content of G and C;
- `nearest`, `nearest_real`: median Hamming distance to the nearest training sequence of either strand. A model that
  copies has a smaller one than real sequences. `copies` is the share within 20 of 200 bases.
"""

import argparse
import copy
import csv
import io
import itertools
import lzma
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy, nll_loss

import unmask
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.config.run_config import RunConfig, resolve
from unmask.evaluation.metrics.bootstrap import share
from unmask.files.storage import replace
from unmask.runtime.device import resolve_device

K = 6
LENGTH = 200
CLOSE = 20  # mismatches within which a sequence counts as a copy
_BLOCK = 64  # sequences that are compared with the training data at a time
Part = list[tuple[str, str]]  # sequences with their cell type


def read(path: Path) -> dict[str, Part]:
    """The sequences of each split: training, validation and test."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rb") as file:
        lines = io.StringIO(file.read().decode())
    parts: dict[str, Part] = {}
    for row in csv.DictReader(lines, delimiter="\t"):
        cell = row["TAG"].partition("_")[0]
        parts.setdefault(row["data_label"], []).append((row["sequence"].upper(), cell))
    return parts


def divided(parts: dict[str, Part], limit: int) -> tuple[Part, Part, Part]:
    """Training rows of the model, training rows of the oracle, and real rows; they share no sequence."""
    rows = list({sequence: (sequence, cell) for sequence, cell in parts["training"]}.values())
    seen = {sequence for sequence, _ in rows}
    real = [row for row in parts["validation"] + parts["test"] if row[0] not in seen]
    order = np.random.default_rng(0).permutation(len(rows))
    third = len(rows) // 3
    oracle, train = ([rows[i] for i in part] for part in (order[:third], order[third:]))
    real = [real[i] for i in np.random.default_rng(1).permutation(len(real))]  # sorted by cell type
    return tuple(part[:limit] if limit else part for part in (train, oracle, real))  # type: ignore[return-value]


def config(train: Path, valid: Path, args: argparse.Namespace) -> RunConfig:
    """A class-conditional MDLM with rows of BOS or class token, 200 bases and EOS."""
    settings: dict[str, Any] = {
        "data.train": str(train),
        "data.valid": str(valid),
        "data.tokenizer.kind": "dna",
        "data.text_field": "sequence",
        "data.label_field": "cell",
        "data.label_given": 0.8,  # samplers give the class at every noise level
        "data.packing": "pad",
        "data.length": LENGTH + 2,
        "data.reverse_complement": 0.5,
        "backbone": args.backbone,
        "backbone.width": 32 if args.tiny else 256,
        "backbone.depth": 1 if args.tiny else 6,
        "training.steps": 4 if args.tiny else args.steps,
        "training.batch": 8 if args.tiny else 256,
        "training.lr": 1e-3,
        "training.warmup": 1 if args.tiny else min(500, args.steps // 10),
        "training.decay": "cosine",
        "training.ema": 0.9 if args.tiny else 0.999,
        "training.precision": "fp32" if args.tiny else "auto",
        "training.validation_rows": 8 if args.tiny else 1024,
        "training.validate_every": 0,
    }
    if "dit" in args.backbone:
        settings["backbone.heads"] = 2 if args.tiny else 8
    return resolve({}, settings)


def codes(sequences: Sequence[str]) -> NDArray[np.uint8]:
    """Bases as numbers, [sequences, 200]; 4 for N and for positions after the end."""
    table = np.full(256, 4, np.uint8)
    table[list(b"ACGT")] = range(4)
    padded = "".join(sequence[:LENGTH].ljust(LENGTH, "N") for sequence in sequences)
    return table[np.frombuffer(padded.encode(), np.uint8)].reshape(-1, LENGTH)


def spectrum(bases: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Frequencies of the k-mers of both strands."""
    counts = np.zeros(4**K)
    for strand in (bases, np.where(bases < 4, 3 - bases, bases)[:, ::-1]):
        windows = np.lib.stride_tricks.sliding_window_view(strand, K, 1).reshape(-1, K)
        whole = windows[(windows < 4).all(1)].astype(np.int64)
        counts += np.bincount(whole @ (4 ** np.arange(K)), minlength=4**K)
    return counts / max(1, counts.sum())


def divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Jensen-Shannon divergence in bits."""
    middle = (p + q) / 2

    def half(a: NDArray[np.float64]) -> float:
        some = a > 0
        return float((a[some] * np.log2(a[some] / middle[some])).sum()) / 2

    return half(p) + half(q)


def one_hot(bases: NDArray[np.uint8], device: torch.device) -> torch.Tensor:
    """Rows of zeros and ones, [sequences, 4 * 200]; the product of two rows counts equal bases."""
    found = torch.from_numpy(np.ascontiguousarray(bases)).to(device)
    return torch.cat([found == base for base in range(4)], 1).float()


def nearest(
    bases: NDArray[np.uint8], train: NDArray[np.uint8], device: torch.device
) -> NDArray[np.int64]:
    """Hamming distance of each sequence to the nearest training sequence of either strand."""
    turned = np.where(train < 4, 3 - train, train)[:, ::-1]
    targets = one_hot(np.concatenate([train, turned]), device)
    found = []
    for start in range(0, len(bases), _BLOCK):
        rows = one_hot(bases[start : start + _BLOCK], device)
        found.append(LENGTH - (rows @ targets.t()).amax(1).round().long().cpu())
    return torch.cat(found).numpy()


def gc(bases: NDArray[np.uint8]) -> float:
    """Share of G and C among the bases."""
    return float(np.isin(bases, (1, 2)).sum() / max(1, (bases < 4).sum()))


class Motifs(nn.Module):
    """Logits of the cell types from motif detectors on both strands, as in Basset and DeepSEA."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        motifs = (nn.Conv1d(4, width, 15), nn.MaxPool1d(6), nn.BatchNorm1d(width), nn.ReLU())
        pairs = (nn.Conv1d(width, width, 5), nn.BatchNorm1d(width), nn.ReLU())
        self.detectors = nn.Sequential(*motifs, *pairs)
        hidden = (nn.Dropout(0.3), nn.Linear(2 * width, width), nn.ReLU())
        self.head = nn.Sequential(*hidden, nn.Dropout(0.3), nn.Linear(width, classes))

    def forward(self, bases: torch.Tensor) -> torch.Tensor:
        bases = bases.unflatten(1, (4, LENGTH))
        # T, G, C, A is the reverse of A, C, G, T: a flip of both axes is the other strand
        found = self.detectors(torch.cat([bases, bases.flip(1, 2)]))
        found = torch.cat(found.chunk(2), 2)  # [rows, width, windows of both strands]
        return self.head(torch.cat([found.amax(2), found.mean(2)], 1))


class Oracle:
    """A classifier of cell types, trained on a part that the generator never reads."""

    def __init__(self, classes: list[str], device: torch.device, width: int = 128) -> None:
        torch.manual_seed(1)
        self.classes, self.device = classes, device
        self.network = Motifs(len(classes), width).to(device)

    def train(self, rows: Part, epochs: int) -> None:
        """Keeps the weights of the epoch with the least loss on a tenth of the rows, which trains nothing."""
        bases = one_hot(codes([sequence for sequence, _ in rows]), self.device)
        targets = torch.tensor([self.classes.index(cell) for _, cell in rows]).to(self.device)
        tenth, least, kept = len(rows) // 10, math.inf, self.network.state_dict()
        optimizer = torch.optim.AdamW(self.network.parameters(), lr=3e-3, weight_decay=1e-2)
        size = min(64, len(rows) - tenth)
        steps = (len(rows) - tenth) // size
        decay = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, epochs * steps)
        for epoch in range(epochs):
            for chosen in (tenth + torch.randperm(len(rows) - tenth)).split(size)[:steps]:
                loss = cross_entropy(self.network(bases[chosen]), targets[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                decay.step()
            held = float(nll_loss(self.log_probabilities(bases[:tenth]), targets[:tenth]))
            print(f"oracle, epoch {epoch + 1}: {held:.4f} nats on held-out rows", flush=True)
            if held < least:
                least, kept = held, copy.deepcopy(self.network.state_dict())
        self.network.load_state_dict(kept)

    @torch.no_grad()
    def log_probabilities(self, bases: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the cell types, [rows, classes]."""
        self.network.eval()
        found = [self.network(some).log_softmax(-1) for some in bases.split(512)]
        self.network.train()
        return torch.cat(found)

    def judge(self, bases: NDArray[np.uint8], cell: str, suffix: str = "") -> dict[str, Any]:
        """Share by argmax and mean probability of a cell type, and the shares of all answers."""
        logs = self.log_probabilities(one_hot(bases, self.device)).double().cpu()
        answers = logs.argmax(-1).bincount(minlength=len(self.classes)) / len(logs)
        own = self.classes.index(cell)
        return {
            f"oracle{suffix}": float(answers[own]),
            f"oracle_probability{suffix}": float(logs[:, own].exp().mean()),
            f"oracle_answers{suffix}": dict(zip(self.classes, answers.tolist(), strict=True)),
        }


def trained_oracle(
    rows: Part, classes: list[str], file: Path, args: argparse.Namespace, device: torch.device
) -> Oracle:
    """The oracle of the run folder, or a new one that is saved there."""
    oracle = Oracle(classes, device, 16 if args.tiny else 128)
    if file.exists():
        oracle.network.load_state_dict(safetensors.torch.load_file(file))
        return oracle
    oracle.train(rows, 1 if args.tiny else args.epochs)
    replace(file, safetensors.torch.save(oracle.network.state_dict()))
    return oracle


def measure(args: argparse.Namespace) -> None:
    runs = Path(args.runs)
    runs.mkdir(parents=True, exist_ok=True)
    train, oracle_rows, real = divided(read(args.data), 64 if args.tiny else 0)
    files = {}
    for name, rows in {"train": train, "valid": real}.items():
        files[name] = runs / f"{name}.tsv"
        lines = [f"{sequence}\t{cell}\n" for sequence, cell in rows]
        files[name].write_text("sequence\tcell\n" + "".join(lines))
    classes, device = sorted({cell for _, cell in train}), resolve_device("auto")
    oracle = trained_oracle(oracle_rows, classes, runs / "oracle.safetensors", args, device)
    # the run folder holds a finished model or a checkpoint to resume from
    model = unmask.train(config(files["train"], files["valid"], args), runs / "model")
    bound = model.perplexity(draws=1 if args.tiny else 4)
    known = codes([sequence for sequence, _ in train])
    truths, about = {}, {}
    for cell in classes:
        truth = truths[cell] = codes([sequence for sequence, found in real if found == cell])
        half = len(truth) // 2
        about[cell] = {
            "cell": cell,
            "perplexity": bound.perplexity,
            "real": len(truth),
            **oracle.judge(truth, cell, "_real"),
            "kmer_js_real": divergence(spectrum(truth[:half]), spectrum(truth[half:])),
            "gc_real": gc(truth),
            "nearest_real": float(np.median(nearest(truth, known, device))),
        }
    balanced = float(np.mean([row["oracle_real"] for row in about.values()]))
    # every cell type at weight 1 comes first: a run that is cut short still has all of them
    report = Report(args.out, 9)
    weights = sorted(args.guidance, key=lambda weight: weight != 1)
    for weight, cell in itertools.product(weights, classes):
        count = 4 if args.tiny else args.n
        written = model.generate(
            label=cell,
            guidance=weight,
            n=count,
            length=LENGTH + 1,
            steps=8 if args.tiny else None,
            stop=False,
            seed=0,
            batch=min(count, args.batch),
        )
        texts = [result.text for result in written]
        bases = codes(texts)
        distance = nearest(bases, known, device)
        row = about[cell] | {
            "oracle_real_balanced": balanced,
            "guidance": weight,
            "n": count,
            **oracle.judge(bases, cell),
            "oracle_error": math.sqrt(0.25 / count),
            "kmer_js": divergence(spectrum(bases), spectrum(truths[cell])),
            "gc": gc(bases),
            "nearest": float(np.median(distance)),
            "copies": float((distance <= CLOSE).mean()),
            "examples": texts[:5],
        }
        report.write(row)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, with real sequences first."""
    head = ["cell type", "sequences", "n", "right cell type, %", "95% interval"]
    head += ["6-mer divergence, bits", "G and C, %", "nearest training sequence", "copies, %"]
    lines = []

    def line(row: dict[str, Any], kind: str, end: str, count: int) -> list[str]:
        right = share([row[f"oracle{end}"]] * count)
        copies = "" if end else f"{100 * row['copies']:.1f}"
        return [
            *(row["cell"], kind, f"{count:,}", f"{100 * row[f'oracle{end}']:.1f}"),
            *(f"{100 * right.low:.1f} to {100 * right.high:.1f}", f"{row[f'kmer_js{end}']:.4f}"),
            *(f"{100 * row[f'gc{end}']:.1f}", f"{row[f'nearest{end}']:.0f}", copies),
        ]

    for cell in dict.fromkeys(row["cell"] for row in rows):
        found = [row for row in rows if row["cell"] == cell]
        lines.append(line(found[0], "real, held out", "_real", found[0]["real"]))
        lines += [line(row, f"guidance {row['guidance']:g}", "", row["n"]) for row in found]
    return "\n".join(markdown(head, lines, left=2))


def main() -> None:
    parser = script_parser(__doc__, "out", "table", "tiny")
    add = parser.add_argument
    add("--data", type=Path, help="TSV file, plain or xz")
    add("--runs", default="runs/enhancers", help="folder of the run")
    add("--backbone", default="modern_dit", help="network of the model")
    add("--steps", type=int, default=10_000, help="steps of training")
    add("--epochs", type=int, default=9, help="epochs of the oracle")
    add("--guidance", type=float, nargs="*", default=(1.0, 2.0, 4.0))
    add("--n", type=int, default=1000, help="sequences per cell type and weight")
    add("--batch", type=int, default=64, help="sequences of a batch")
    args = parser.parse_args()
    if args.table:
        print(table(read_rows(*args.table)))
    elif args.data:
        measure(args)
    else:
        parser.error("--data is missing")
