"""Speed ratios that must not decrease, measured at small sizes: part of `make test-all`.

Each is a ratio of two ways that take turns in this process, so a busy machine slows both. Prints one JSON line for each
ratio. Fails if a ratio is more than a quarter below its floor. The docstring of each function names the benchmark that
measures the same at full size.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.speed import dense_logits, naive_sampler, tokenizing
from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.methods.mdlm import MDLM

SLACK = 0.75  # share of the floor that suffices, because of noise and small sizes


@dataclass(frozen=True)
class Ratio:
    """A speed-up of the package over another implementation, and the least that it must be."""

    name: str
    floor: float
    measure: Callable[[], float]


def training(other: dense_logits.Loss, vocabulary: int, rows: int, steps: int) -> float:
    """dense_logits.py: a training step of the package against a step with another loss."""
    losses = {"ours": dense_logits.masked_only, "other": other}
    runs = {n: dense_logits.Run(loss, vocabulary, 0.1, rows) for n, loss in losses.items()}
    seconds = dense_logits.median_seconds(runs, steps)
    return seconds["other"] / seconds["ours"]


def everything(method: MDLM, batch: dense_logits.Batch) -> Tensor:
    """The package's loss with every token masked, so that no logits are saved."""
    masked = torch.ones_like(batch.noise.masked)
    return dense_logits.masked_only(
        method, replace(batch, noise=replace(batch.noise, masked=masked))
    )


def sampling(timed: int) -> float:
    """naive_sampler.py: against the sampler that calls the network at each of its 1,000 steps."""
    method = dense_logits.model(naive_sampler.VOCABULARY, dropout=0.0).eval()
    seconds = naive_sampler.measure(
        method, 1, naive_sampler.LENGTH, naive_sampler.STEPS, timed=timed
    )
    return seconds["naive"] / seconds["ours"]


def tokenising(repeats: int) -> float:
    """tokenizing.py: a BPE on text that it has tokenised before, against the library."""
    texts = tokenizing.documents("builtin:pydoc", separator="", megabytes=1)
    tokenizer = build_tokenizer(TokenizerConfig("bpe", 2048), texts)
    rates = tokenizing.measure(tokenizer, texts, repeats)
    return rates["warm"] / rates["library"]


RATIOS = (
    Ratio("training, V = 8k", 1.2, lambda: training(dense_logits.fused, 8_192, 8, 4)),
    Ratio("training, V = 50k", 1.6, lambda: training(dense_logits.fused, 50_257, 6, 3)),
    Ratio("training, masked tokens only", 1.4, lambda: training(everything, 50_257, 8, 3)),
    Ratio("sampling, T = 1000", 8.0, lambda: sampling(timed=20)),
    Ratio("tokenising", 3.0, lambda: tokenising(repeats=5)),
)


def main() -> int:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    lost = []
    for ratio in RATIOS:
        measured, least = ratio.measure(), SLACK * ratio.floor
        row = {"ratio": ratio.name, "measured": round(measured, 2), "floor": ratio.floor}
        print(json.dumps(row), flush=True)
        if measured < least:
            lost.append(f"{ratio.name}: {measured:.2f}, less than {least:.2f}")
    if lost:
        print("smoke.py: too slow: " + "; ".join(lost), file=sys.stderr)
    return bool(lost)
