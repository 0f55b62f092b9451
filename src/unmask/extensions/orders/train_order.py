"""unmask train-order: trains a policy of the order in which a model writes tokens."""

import argparse
import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from unmask.cli.output.tables import say, show_tables
from unmask.cli.parser import Commands, add_examples, add_model, given, list_of
from unmask.errors import UnmaskError
from unmask.files.storage import check_place

GROUP = "train"

_SETTINGS = ("steps", "updates", "batch", "group", "lr", "seed")


def add(commands: Commands) -> None:
    summary = "train a policy that chooses which positions a model writes first"
    parser = commands.add_parser("train-order", help=summary, description=summary)
    add_model(parser)
    add = parser.add_argument_group("training", argument_default=argparse.SUPPRESS).add_argument
    add("--data", metavar="SOURCE", help="texts; by default the model's validation text")
    add("--length", type=int, metavar="N", help="tokens of a text; by default the model's length")
    add(
        "--prior",
        metavar="NAME",
        help="order before training: confidence, entropy, margin or random (confidence)",
    )
    add("--steps", type=list_of(int), metavar="N,N", help="sampler steps to train for (4,8,16,32)")
    add("--updates", type=int, metavar="N", help="optimizer steps (200)")
    add("--batch", type=int, metavar="N", help="texts of an update (8)")
    add("--group", type=int, metavar="N", help="orders of each text (4)")
    add("--lr", type=float, metavar="X", help="learning rate (0.01)")
    add("--seed", type=int, metavar="N", help="seed of texts and orders (0)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("order.safetensors"),
        metavar="FILE",
        help="file of the policy (order.safetensors)",
    )
    add_examples(
        parser,
        "unmask train-order stories --data stories.txt --steps 8,16 --length 128",
        "unmask generate stories --order-policy order.safetensors --steps 16",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask.cli.output.elements import Table
    from unmask.extensions.orders.order_policy import PRIORS
    from unmask.extensions.orders.order_training import OrderTraining
    from unmask.extensions.orders.train_policy import train_order_policy
    from unmask.model import load

    check_place(args.out)
    if getattr(args, "prior", "random") not in ("random", *PRIORS):
        raise UnmaskError(f"--prior is {args.prior!r}: give {', '.join((*PRIORS, 'random'))}")
    if getattr(args, "length", 2) < 2:
        raise UnmaskError(f"--length must be 2 or more, not {args.length}")
    settings = OrderTraining(**given(args, *_SETTINGS))
    model = load(args.model, **given(args, "device"))
    policy, values = train_order_policy(
        model,
        getattr(args, "data", None),
        settings,
        **given(args, "length", "prior"),
        say=(lambda line: None) if args.json else say,
    )
    policy.save(args.out)
    if args.json:
        print("\n".join(json.dumps({"model": args.model, **asdict(one)}) for one in values))
        return
    rows = [
        [
            str(one.steps),
            *(f"{x:.4f}" for x in (one.before, one.after, one.before - one.after, one.error)),
        ]
        for one in values
    ]
    columns = ["steps", "before", "after", "gain", "error"]
    show_tables([Table(f"Nats per token of {values[0].rows} held-out texts", columns, rows)])
    print(f"the policy is in {args.out}: give generate --order-policy {args.out}")
