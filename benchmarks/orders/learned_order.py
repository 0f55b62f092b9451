"""Nats per token of real text that a sampler reveals in 4 to 64 network calls, for several orders.

    python benchmarks/orders learned_order stories --data stories.txt --policy order.safetensors --out order.jsonl
    python benchmarks/orders learned_order --table order.jsonl --plot order.png

The orders are random, confidence, margin, entropy, and a policy. The policy trains on four of five rows of the text.
The other rows are measured. Each text is revealed with its own tokens, so the figure is a bound on the log-likelihood
of the text under the sampler's distribution. Lower is better. The difference to confidence is over the same rows.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unmask
from benchmarks.pictures import picture
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.evaluation.metrics.bootstrap import ratio
from unmask.extensions.orders.order_policy import OrderPolicy
from unmask.extensions.orders.order_training import OrderTraining, reveal
from unmask.extensions.orders.train_policy import HELD_OUT, train_order_policy
from unmask.likelihood.perplexity import rows_of
from unmask.shapes import targets

Nats = tuple[np.ndarray, np.ndarray]  # nats and tokens of each row
ORDERS = ("random", "confidence", "margin", "entropy")


@torch.no_grad()
def nats(model: unmask.Model, policy: OrderPolicy, args: argparse.Namespace, steps: int) -> Nats:
    """Nats and tokens of each held-out row."""
    rows = rows_of(model, args.data)
    held = range(0, len(rows), HELD_OUT)[: args.rows]
    v, generator = model.tokenizer.vocabulary, torch.Generator().manual_seed(args.seed)
    values, tokens = [], []
    for start in range(0, len(held), args.batch):
        part = held[start : start + args.batch]
        x, valid = (each[:, : args.length] for each in rows[part])
        given = rows.given(part)
        places = targets(valid, None if given is None else given[:, : args.length])
        places &= x != (-1 if v.bos_id is None else v.bos_id)
        texts = x.to(model.device), places.to(model.device)
        drawn = generator if policy.prior_name == "random" and not policy.digest else None
        frozen = model.method.denoiser(), model.method.schedule, v.mask_id
        found = reveal(policy.to(model.device), *frozen, texts, steps, drawn)
        values += (-found.rewards.sum(0).double()).tolist()
        tokens += places.sum(1).tolist()
    return np.array(values), np.array(tokens)


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Trains a policy, or reads it, and yields a row for each number of calls and order."""
    model = unmask.load(args.model, device=args.device)
    if args.policy is not None and args.policy.exists():
        policy = OrderPolicy.load(args.policy)
    else:
        settings = OrderTraining(
            tuple(args.calls), args.updates, args.batch, args.group, seed=args.seed
        )
        policy, _ = train_order_policy(model, args.data, settings, length=args.length, say=print)
        if args.policy is not None:
            policy.save(args.policy)
    for calls in args.calls:
        own = {}
        for name in (*ORDERS, "learned"):
            order = policy if name == "learned" else OrderPolicy(name)
            own[name] = nats(model, order, args, calls)
        for name, (values, tokens) in own.items():
            figure = ratio(values, tokens)
            row = {"row": f"{name}/{calls}", "order": name, "calls": calls, "rows": len(values)}
            row |= {"nats": figure.value, "low": figure.low, "high": figure.high}
            if name != "confidence":
                change = ratio(values - own["confidence"][0], tokens)
                row |= {
                    "change": change.value,
                    "change_low": change.low,
                    "change_high": change.high,
                }
            yield row


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    """Nats per token with 95% intervals: a line for each order, a column for each number of calls."""
    calls = sorted({row["calls"] for row in found})
    by = {(row["order"], row["calls"]): row for row in found}
    for title, name in (("nats per token", ""), ("less confidence", "change")):
        orders = dict.fromkeys(row["order"] for row in found)
        lines = [[order, *(_cell(by.get((order, n), {}), name) for n in calls)] for order in orders]
        yield from markdown(
            [title, *(f"{n} calls" for n in calls)], (e for e in lines if any(e[1:]))
        )
        yield ""


def _cell(row: dict[str, Any], name: str) -> str:
    if (name or "nats") not in row:
        return ""
    ends = ("change_low", "change_high") if name else ("low", "high")
    value, low, high = (f"{row[key]:{'+' if name else ''}.3f}" for key in (name or "nats", *ends))
    return f"{value} [{low}, {high}]"


def draw(found: list[dict[str, Any]], file: Path) -> None:
    """Draws the difference to confidence against the calls."""
    with picture(file, (6, 4), dpi=120) as (_, (axes,)):
        for order in dict.fromkeys(row["order"] for row in found):
            mine = [row for row in found if row["order"] == order and "change" in row]
            y = np.array([row["change"] for row in mine])
            ends = np.array([[row["change_low"], row["change_high"]] for row in mine]).reshape(
                -1, 2
            )
            error = np.abs(ends.T - y)
            if mine:
                x = [row["calls"] for row in mine]
                axes.errorbar(x, y, error, marker="o", capsize=3, label=order)
        axes.axhline(0, color="black", linewidth=0.8, label="confidence")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set(xlabel="network calls", ylabel="nats per token, less confidence")
        axes.legend(frameon=False, fontsize=9)


def main() -> None:
    parser = script_parser(__doc__, "out", "table", "plot")
    add = parser.add_argument
    add("model", nargs="?")
    add("--data")
    add("--length", type=int, default=128)
    add("--calls", type=int, nargs="+", default=[4, 8, 16, 32, 64])
    add("--updates", type=int, default=400)
    add("--batch", type=int, default=16)
    add("--group", type=int, default=8)
    add("--rows", type=int, default=64, help="held-out rows that are measured")
    add("--seed", type=int, default=0)
    add("--device", default="auto")
    add("--policy", type=Path, help="file of the policy; an existing one is read")
    args = parser.parse_args()
    if args.table:
        found = read_rows(*args.table)
        print("\n".join(table(found)))
        if args.plot:
            draw(found, args.plot)
        return
    if not args.model:
        parser.error("give a model")
    report = Report(args.out)
    for row in rows(args):
        report.write(row)
