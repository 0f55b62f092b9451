"""unmask evaluate: how well a model predicts a text."""

import argparse
import json
import math
from argparse import Namespace
from typing import TYPE_CHECKING

from unmask.cli.parser import Commands, add_arithmetic, add_model, given

if TYPE_CHECKING:
    from unmask.evaluation import Bound


def add(commands: Commands) -> None:
    summary = "measure perplexity on a text, with its Monte-Carlo error"
    parser = commands.add_parser("evaluate", help=summary, description=summary)
    add_model(parser)
    options = parser.add_argument_group("measure", argument_default=argparse.SUPPRESS)
    options.add_argument(
        "--data",
        metavar="SOURCE",
        help="file, folder, hf:NAME, builtin:NAME, or - (the run's validation text)",
    )
    options.add_argument(
        "--draws", type=int, metavar="N", help="noise draws per row: the error falls as 1/sqrt(N)"
    )
    options.add_argument("--seed", type=int, metavar="N", help="seed of the draws")
    options.add_argument(
        "--packing", metavar="MODE", help="wrap, pad or split (as the training text was packed)"
    )
    add_arithmetic(options)
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask import api

    model = api.load(args.model, **given(args, "device", "precision", "compile"))
    bound = model.perplexity(**given(args, "data", "draws", "seed", "packing"))
    data = model.config.data
    # what a perplexity depends on beside the model
    conditions = {
        "data": getattr(args, "data", data.valid or f"{data.train}, {data.holdout:.0%} held out"),
        "packing": getattr(args, "packing", data.packing),
        "length": data.length,
        "tokenizer": f"{data.tokenizer.kind} {model.tokenizer.vocabulary.size}",
        "precision": getattr(args, "precision", "fp32"),
    }
    if args.json:
        print(json.dumps({**conditions, **bound.to_dict()}))
    else:
        _show(args.model, bound, conditions)


def _show(title: str, bound: "Bound", conditions: dict[str, object]) -> None:
    from rich.console import Console
    from rich.table import Table

    sign = "≤ " if bound.certificate == "upper" else ""
    table = Table(title=title, show_header=False)
    table.add_row("perplexity", sign + with_error(bound.perplexity, bound.perplexity_error))
    table.add_row("nats per token", sign + with_error(bound.nats, bound.error))
    table.add_row("bits per byte", sign + f"{bound.bits_per_byte:.3f}")
    table.add_row("bits per character", sign + f"{bound.bits_per_character:.3f}")
    table.add_row("tokens", f"{bound.tokens:,}")
    table.add_row("draws", str(bound.draws))
    if len(bound.terms) > 1:
        table.add_row(
            "terms", ", ".join(f"{name} {value:.4f}" for name, value in bound.terms.items())
        )
    for name, value in conditions.items():
        table.add_row(name, str(value))
    Console().print(table)


def with_error(value: float, error: float) -> str:
    """A value to the digits that its standard error leaves, with the error's first two."""
    if error == 0:
        return f"{value:.4f}"
    if math.isinf(error):  # one draw of one row says nothing about its error
        return f"{value:.4f} ± ?"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"
