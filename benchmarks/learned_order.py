"""Nats per token of real text that a sampler reveals in 4 to 64 network calls, for several orders.

    python benchmarks/learned_order.py stories --data stories.txt --length 128 --out order.safetensors

The orders are random, confidence, margin, entropy, and a policy. The policy trains on four of five rows of the text.
The other rows are measured. Each text is revealed with its own tokens, so the figure is a bound on the log-likelihood
of the text under the sampler's distribution. Lower is better.
"""

import argparse
import json
from pathlib import Path

import torch

import unmask
from unmask.likelihood.perplexity import rows_of
from unmask.methods.method import targets
from unmask.runs.train_policy import HELD_OUT, MOST_MEASURED, train_order_policy
from unmask.samplers.order_policy import OrderPolicy
from unmask.training.order_training import OrderTraining, reveal

ORDERS = ("random", "confidence", "margin", "entropy")


@torch.no_grad()
def nats(model: unmask.Model, policy: OrderPolicy, args: argparse.Namespace, steps: int) -> dict:
    """Nats per token of the held-out rows with a standard error over rows."""
    rows = rows_of(model, args.data)
    held = range(0, len(rows), HELD_OUT)[: min(args.rows, MOST_MEASURED)]
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
        values.append(-found.rewards.sum(0).double().cpu())
        tokens.append(places.sum(1))
    own, count = torch.cat(values), torch.cat(tokens).double()
    mean = float(own.sum() / count.sum())
    residual = own - mean * count
    error = float((residual.var() * len(own)).sqrt() / count.sum())
    return {"nats": round(mean, 4), "error": round(error, 4), "rows": len(own)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--data")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--calls", type=int, nargs="+", default=[4, 8, 16, 32, 64])
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    model = unmask.load(args.model, device=args.device)
    settings = OrderTraining(
        tuple(args.calls), args.updates, args.batch, args.group, seed=args.seed
    )
    policy, _ = train_order_policy(model, args.data, settings, length=args.length, say=print)
    if args.out is not None:
        policy.save(args.out)
    for name in (*ORDERS, "learned"):
        order = policy if name == "learned" else OrderPolicy(name)
        for calls in args.calls:
            found = nats(model, order, args, calls)
            print(json.dumps({"order": name, "calls": calls, **found}), flush=True)


if __name__ == "__main__":
    main()
