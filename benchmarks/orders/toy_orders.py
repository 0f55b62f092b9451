"""Orders of writing on languages with every text listed: loss against the best fixed order, in two network calls.

    python benchmarks/orders toy_orders --languages 24 --out toy-orders.jsonl

A language has two tokens and four positions. Its positions are two dependent pairs, at random places and with random
strength. The denoiser is exact. Two tokens of a pair that are written in one call lose what they share. The value of
an order is E log q of the language's texts in nats. The best fixed order comes from all six choices of the first two
positions. Each policy trains on texts of its own language.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from benchmarks.room import script_parser
from benchmarks.rows import Report

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "laws"))

from kit import Language

from unmask.diffusion.schedule import LogLinear
from unmask.evaluation.metrics.bootstrap import mean
from unmask.extensions.orders.order_policy import OrderPolicy
from unmask.extensions.orders.order_training import OrderTraining, reveal, train_order

SCHEDULE, LENGTH = LogLinear(), 4
ORDERS = ("random", "confidence", "margin", "entropy", "learned")
DRAWS = 100  # random orders of each text


def language(seed: int) -> Language:
    """Two pairs of equal tokens with some noise, at random places."""
    generator = torch.Generator().manual_seed(seed)
    strengths = 0.6 + 0.38 * torch.rand(2, generator=generator).double()
    pairs = [torch.tensor([[s, 1 - s], [1 - s, s]]).double() / 2 for s in strengths.tolist()]
    table = torch.einsum("ab,cd->abcd", *pairs)
    return Language(
        2, LENGTH, table.permute(*torch.randperm(LENGTH, generator=generator)).reshape(-1)
    )


@torch.no_grad()
def value(own: Language, policy: OrderPolicy, steps: int, drawn: bool = False) -> float:
    """E log q of the texts: with the highest scores first, or the mean over random orders."""
    texts = (own.sequences, torch.ones_like(own.sequences, dtype=torch.bool))
    generator = torch.Generator().manual_seed(0) if drawn else None
    frozen = own.denoiser, SCHEDULE, own.size
    found = [reveal(policy, *frozen, texts, steps, generator) for _ in range(DRAWS if drawn else 1)]
    rewards = torch.stack([each.rewards.sum(0).double() for each in found]).mean(0)
    return float(own.table @ rewards)


def best_fixed(own: Language) -> float:
    """E log q of the best fixed order in two steps."""
    values = []
    for first in combinations(range(LENGTH), LENGTH // 2):
        chosen = torch.tensor([place in first for place in range(LENGTH)])
        loss = 0.0
        for part, given in ((chosen, torch.zeros_like(chosen)), (~chosen, chosen)):
            rest = own.subset_entropy(given)
            ones = [one for one in torch.eye(LENGTH).bool() if (one & part).any()]
            loss += sum(own.subset_entropy(given | one) - rest for one in ones)
        values.append(-loss)
    return max(values)


def learned(own: Language, seed: int, updates: int) -> OrderPolicy:
    """A policy that is trained on texts of the language."""
    generator, policy = torch.Generator().manual_seed(seed), OrderPolicy()

    def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.multinomial(own.table, 16, replacement=True, generator=generator)
        return own.sequences[rows], torch.ones(16, LENGTH, dtype=torch.bool)

    settings = OrderTraining(steps=(2,), updates=updates, batch=16, group=8, lr=0.03, seed=seed)
    for _ in train_order(policy, own.denoiser, SCHEDULE, own.size, batch, settings):
        pass
    return policy


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The mean loss of each order over all languages, and its largest error with one token a call."""
    losses, errors = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for seed in range(args.languages):
        own = language(seed)
        best = best_fixed(own)
        for name in ORDERS:
            policy = learned(own, seed, args.updates) if name == "learned" else OrderPolicy(name)
            losses[name].append(best - value(own, policy, 2, name == "random"))
            errors[name].append(abs(value(own, policy, LENGTH, name == "random") + own.entropy))
    for name in ORDERS:
        figure = mean(losses[name])
        found = {"loss": figure.value, "low": figure.low, "high": figure.high}
        yield {
            "row": name,
            "languages": args.languages,
            **found,
            "largest": max(losses[name]),
            "error_one_by_one": max(errors[name]),
        }


def main() -> None:
    parser = script_parser(__doc__, "out")
    add = parser.add_argument
    add("--languages", type=int, default=24)
    add("--updates", type=int, default=100, help="updates of a policy")
    args = parser.parse_args()
    report = Report(args.out)
    for row in rows(args):
        report.write(row)
