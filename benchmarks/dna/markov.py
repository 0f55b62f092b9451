"""Held-out perplexity of Markov models of DNA of order 4 to 11, the baseline of every neural model.

    python benchmarks/dna markov genome.fa --length 1024 --out markov.jsonl

A model of order k predicts a base from the k bases before it. Its counts are smoothed by the model of order k - 1:
p_k = (count + alpha p_(k-1)) / (total + alpha). The last 5% of the training rows choose alpha of each order.
Rows, held-out part and strands are those of a training configuration. No context crosses the start of a row.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.room import script_parser
from benchmarks.rows import Report
from unmask.config.run_config import resolve
from unmask.data.load import load_data
from unmask.data.rows.token_rows import Rows

ALPHAS = tuple(2.0**power for power in range(15))
BASES, N = 4, 4  # ids of bases are 0 to 3
TUNING = 0.05  # share of the training rows that choose alpha
_BLOCK = 4096  # rows that are counted at a time


@dataclass
class Markov:
    """Counts of all orders up to the largest, and alpha of each order."""

    counts: list[NDArray[np.int64]]  # of order k: [4^k contexts, 4 bases]
    alphas: list[float]

    @classmethod
    def fit(cls, tables: list[NDArray[np.uint8]], order: int, strands: int = 2) -> "Markov":
        """Counts the bases of rows, on one or both strands, and chooses alpha of each order."""
        held = max(1, round(TUNING * sum(map(len, tables))))
        rows = np.concatenate(tables)
        model = cls([np.zeros((BASES**k, BASES), np.int64) for k in range(order + 1)], [])
        model._count(rows[:-held], strands)
        model._choose_alphas(rows[-held:])
        model._count(rows[-held:], strands)
        return model

    def _count(self, rows: NDArray[np.uint8], strands: int) -> None:
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            self._add(part)
            if strands == 2:
                self._add(np.where(part < BASES, BASES - 1 - part, part)[:, ::-1])

    def _add(self, rows: NDArray[np.uint8]) -> None:
        for k, (context, base, _) in enumerate(_contexts(rows, len(self.counts) - 1)):
            found = np.bincount(context * BASES + base, minlength=BASES ** (k + 1))
            self.counts[k] += found.reshape(-1, BASES)

    def _choose_alphas(self, rows: NDArray[np.uint8]) -> None:
        """Alpha of each order in turn, given those of the lower orders."""
        before = np.full(rows.shape, 1 / BASES)
        for k, (context, base, at) in enumerate(_contexts(rows, len(self.counts) - 1)):
            tried = [self._smoothed(k, context, base, before[at], alpha) for alpha in ALPHAS]
            best = int(np.argmax([np.log(p).sum() for p in tried]))
            self.alphas.append(ALPHAS[best])
            before[at] = tried[best]

    def _smoothed(
        self, k: int, context: NDArray, base: NDArray, before: NDArray, alpha: float
    ) -> NDArray[np.float64]:
        counts = self.counts[k]
        return (counts[context, base] + alpha * before) / (counts.sum(1)[context] + alpha)

    def nats(self, rows: NDArray[np.uint8]) -> Iterator[NDArray[np.float64]]:
        """For each order, the nats of every base of the rows; 0 at N and padding."""
        p = np.full(rows.shape, 1 / BASES)
        for k, (context, base, at) in enumerate(_contexts(rows, len(self.counts) - 1)):
            p[at] = self._smoothed(k, context, base, p[at], self.alphas[k])
            yield np.where(rows < BASES, -np.log(p), 0.0)


def _contexts(rows: NDArray[np.uint8], order: int) -> Iterator[tuple[NDArray, NDArray, NDArray]]:
    """For k = 0 to `order`: context and base at each position that has k bases before it, and these positions."""
    real = rows < BASES
    context, known = np.zeros(rows.shape, np.int64), real.copy()
    for k in range(order + 1):
        if k:
            before = np.full(rows.shape, N, np.int64)
            before[:, k:] = rows[:, :-k]
            known &= before < BASES
            context += np.where(known, before, 0) * BASES ** (k - 1)
        yield context[known], rows[known].astype(np.int64), known


def bases_of(rows: Rows) -> list[NDArray[np.uint8]]:
    """The tokens of rows as bytes; N and padding are 4 or more."""
    found = []
    for start in range(0, len(rows), _BLOCK):
        x, valid = rows[range(start, min(start + _BLOCK, len(rows)))]
        found.append(np.where(valid.numpy(), x.numpy(), N).astype(np.uint8))
    return found


def measure(train: Rows, valid: Rows, orders: range, strands: int = 2) -> Iterator[dict]:
    """Perplexity of held-out rows for each order, with a 95% interval over rows."""
    model = Markov.fit(bases_of(train), orders.stop - 1, strands)
    held = np.concatenate(bases_of(valid))
    bases = (held < BASES).sum(1)
    for order, nats in enumerate(model.nats(held)):
        if order not in orders:
            continue
        by_row = nats.sum(1)
        mean = by_row.sum() / bases.sum()
        spread = math.sqrt(((by_row - mean * bases) ** 2).sum()) / bases.sum()
        low, high = (math.exp(mean + sign * 1.96 * spread) for sign in (-1, 1))
        yield {
            "row": f"markov-{order}",
            "order": order,
            "perplexity": math.exp(mean),
            "interval": [low, high],
            "bases": int(bases.sum()),
            "alpha": model.alphas[order],
            "strands": strands,
        }


def main() -> None:
    parser = script_parser(__doc__, "out")
    add = parser.add_argument
    add("genome", help="FASTA file")
    add("--length", type=int, default=1024, help="bases of a row")
    add("--exclude", default="", help="BED file of intervals that are left out")
    add("--holdout-intervals", default="", help="BED file of the held-out part")
    add("--orders", type=int, nargs=2, default=(4, 11), help="first and last order")
    add("--strands", type=int, choices=(1, 2), default=2, help="strands that are counted")
    args = parser.parse_args()
    data = load_data(genome_config(args.genome, args.length, args.exclude, args.holdout_intervals))
    first, last = args.orders
    report = Report(args.out, 9)
    for row in measure(data.train, data.valid, range(first, last + 1), args.strands):
        report.write(row)


def genome_config(genome: str, length: int, exclude: str = "", holdout: str = ""):
    """The data section of windows of a genome."""
    names = ("train", "length", "exclude", "holdout_intervals")
    chosen = dict(zip(names, (genome, length, exclude, holdout), strict=True))
    fixed = {"data.packing": "windows", "data.tokenizer.kind": "dna"}
    return resolve({}, fixed | {f"data.{name}": value for name, value in chosen.items()}).data
