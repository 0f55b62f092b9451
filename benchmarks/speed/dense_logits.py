"""A training step with logits at masked tokens only, against the same model with logits at every token.

Prints one JSON line for each vocabulary and dense form. For time, all variants take turns step by step in one process,
so other work of the machine slows all of them. For memory, each variant runs in its own process (Linux only).
"""

import argparse
import json
import math
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.room import again, script_parser
from unmask import shapes
from unmask.backbones.dit import DiT
from unmask.diffusion.process import q_sample
from unmask.diffusion.schedule import LogLinear
from unmask.diffusion.time_sampler import Noise, Stratified
from unmask.methods.mdlm import MDLM
from unmask.randomness import RowStream
from unmask.vocabulary import Vocabulary

ROWS, LENGTH, WIDTH, DEPTH, HEADS = 16, 128, 256, 6, 4
VOCABULARIES = (8_192, 50_257)


@dataclass(frozen=True)
class Batch:
    """Tokens, and the noise that both variants share."""

    x: Tensor
    valid: Tensor
    noise: Noise


Loss = Callable[[MDLM, Batch], Tensor]


def masked_only(method: MDLM, batch: Batch) -> Tensor:
    """The package's own loss."""
    return method.nll(shapes.Batch(batch.x.cpu(), batch.valid), batch.noise).total / batch.x.numel()


def authors(method: MDLM, batch: Batch) -> Tensor:
    """The loss as the authors compute it: log x_theta over [rows, length, vocabulary], then that of the true token."""
    z_t, logits = _all_logits(method, batch)
    log_x_theta = authors_log_x_theta(z_t, logits, method.vocabulary.mask_id)
    nll = -log_x_theta.gather(-1, batch.x[:, :, None])[:, :, 0]
    return (nll * _weight(method, batch)).mean()


def authors_log_x_theta(z_t: Tensor, logits: Tensor, mask_id: int) -> Tensor:
    """The authors' log-probabilities at every token: MASK has none, and a visible token keeps its value."""
    logits[:, :, mask_id] += -1e6
    log_x_theta = logits - logits.logsumexp(-1, keepdim=True)
    kept = z_t != mask_id
    log_x_theta[kept] = -1e6
    log_x_theta[kept, z_t[kept]] = 0
    return log_x_theta


def fused(method: MDLM, batch: Batch) -> Tensor:
    """The cheapest dense form: torch's cross-entropy at every token, with weight zero at unmasked tokens."""
    _, logits = _all_logits(method, batch)
    logits[:, :, method.vocabulary.mask_id] += -1e6
    nll = F.cross_entropy(logits.view(-1, logits.shape[-1]), batch.x.view(-1), reduction="none")
    return (nll.view_as(batch.x) * batch.noise.masked * _weight(method, batch)).mean()


VARIANTS: dict[str, Loss] = {"ours": masked_only, "authors": authors, "fused": fused}


def _all_logits(method: MDLM, batch: Batch) -> tuple[Tensor, Tensor]:
    z_t = q_sample(batch.x, batch.noise.masked, method.vocabulary.mask_id)
    return z_t, method.backbone.logits(method.backbone.features(z_t))


def _weight(method: MDLM, batch: Batch) -> Tensor:
    (weight,) = method.loss_inputs(batch.noise.t)
    return (weight * batch.noise.importance).float()[:, None]


def model(vocabulary: int, dropout: float) -> MDLM:
    """The measured network. Its weights are random, because zeros would hide most gradients."""
    torch.manual_seed(0)
    config = DiT.Config(width=WIDTH, depth=DEPTH, heads=HEADS, dropout=dropout)
    v = Vocabulary(vocabulary, vocabulary - 1)
    method = MDLM(MDLM.Config(), DiT(config, v), v, LogLinear(), Stratified())
    for parameter in method.parameters():
        nn.init.normal_(parameter, std=0.02)
    return method


class Run:
    """A model in training with one of the losses."""

    def __init__(self, loss: Loss, vocabulary: int, dropout: float, rows: int = ROWS) -> None:
        self.method = model(vocabulary, dropout)
        self.optimizer = torch.optim.AdamW(self.method.parameters(), lr=3e-4, foreach=True)
        self.loss, self.rows = loss, rows

    def batch(self, step: int) -> Batch:
        generator = torch.Generator().manual_seed(step)
        mask_id = self.method.vocabulary.mask_id
        x = torch.randint(0, mask_id, (self.rows, LENGTH), generator=generator)
        valid = torch.ones_like(x).bool()
        stream = RowStream(0, step, range(self.rows), self.rows)
        return Batch(x, valid, self.method.noise(stream, valid))

    def gradients(self, batch: Batch) -> tuple[float, dict[str, Tensor]]:
        """Loss and gradients, without a step."""
        torch.manual_seed(1)  # dropout
        loss = self.loss(self.method, batch)
        loss.backward()
        found = {n: p.grad for n, p in self.method.named_parameters() if p.grad is not None}
        self.optimizer.zero_grad()
        return loss.item(), found

    def step(self, batch: Batch) -> float:
        """Seconds that a step takes."""
        start = time.perf_counter()
        self.loss(self.method, batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - start


def check(runs: dict[str, Run]) -> None:
    """All variants must compute the same thing."""
    batch = runs["ours"].batch(0)
    value, gradients = runs["ours"].gradients(batch)
    for name, run in runs.items():
        other, theirs = run.gradients(batch)
        assert math.isclose(value, other, rel_tol=1e-5), (name, value, other)
        assert gradients.keys() == theirs.keys(), name
        for key, gradient in gradients.items():
            error = (gradient - theirs[key]).norm() / theirs[key].norm().clamp(min=1e-12)
            assert error < 1e-4, (name, key, error)


def median_seconds(runs: dict[str, Run], steps: int) -> dict[str, float]:
    """Median seconds of a step of each variant, without the first step."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for step in range(steps + 1):
        for name, run in runs.items():
            taken[name].append(run.step(run.batch(step)))
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def peak_mib(name: str, vocabulary: int, dropout: float, threads: int) -> float:
    """Peak memory of training: weights, gradients and optimizer, without the memory of the imports."""
    command = [*again(__file__), "--peak", name, "--vocabulary", str(vocabulary)]
    command += ["--dropout", str(dropout), "--threads", str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(name: str, vocabulary: int, dropout: float) -> None:
    before = _high_water_kib()
    run = Run(VARIANTS[name], vocabulary, dropout)
    for step in range(3):
        run.step(run.batch(step))
    print((_high_water_kib() - before) / 1024)


def _high_water_kib() -> int:
    """This process's peak memory. getrusage is not used: it reports the parent's peak if that is larger."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


def rows(vocabulary: int, seconds: dict[str, float], peak: dict[str, float]) -> Iterator[dict]:
    """Rows that compare the package's loss with each dense form."""
    for dense in ("authors", "fused"):
        yield {
            "vocabulary": vocabulary,
            "dense": dense,
            "ours_seconds": round(seconds["ours"], 4),
            "dense_seconds": round(seconds[dense], 4),
            "speedup": round(seconds[dense] / seconds["ours"], 2),
            "ours_peak_mib": round(peak["ours"]),
            "dense_peak_mib": round(peak[dense]),
            "memory_ratio": round(peak["ours"] / peak[dense], 2),
        }


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--steps", type=int, default=20, help="timed steps of each variant")
    add("--threads", type=int, default=2)
    add("--dropout", type=float, default=0.1)
    add("--vocabulary", type=int, nargs="+", default=VOCABULARIES)
    add("--peak", choices=VARIANTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for size in args.vocabulary:
        if args.peak:
            print_peak(args.peak, size, args.dropout)
            continue
        peak = {name: peak_mib(name, size, args.dropout, args.threads) for name in VARIANTS}
        runs = {name: Run(loss, size, args.dropout) for name, loss in VARIANTS.items()}
        check(runs)
        for row in rows(size, median_seconds(runs, args.steps), peak):
            print(json.dumps(row), flush=True)
