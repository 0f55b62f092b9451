"""unmask evaluate --suite generation: what a model writes, judged, as a frontier beside real text."""

import argparse
from argparse import Namespace
from pathlib import Path

from unmask.cli import compare
from unmask.cli.parser import Parser
from unmask.errors import UnmaskError

STEPS = (8, 32, 128)
SAMPLES = 256
_OTHERS = ("data", "draws", "packing", "estimator", "order", "orders", "shard", "save")


def add(parser: Parser) -> None:
    options = parser.add_argument_group(
        "generation and infilling suites", argument_default=argparse.SUPPRESS
    )
    add = options.add_argument
    add(
        "--judge",
        metavar="JUDGE",
        help="a causal model by hub name, folder or .gguf file, or a run (GPT-2-large)",
    )
    compare.add_prefix(add)
    add("--samples", type=int, metavar="N", help=f"texts of each setting ({SAMPLES})")
    add(
        "--samplers",
        nargs="+",
        metavar="NAME",
        help="see 'unmask samplers'; the model's usual one unless given",
    )
    if "--steps" not in parser._option_string_actions:
        add("--steps", nargs="+", type=int, metavar="N", help="denoising steps (8 32 128)")
    add("--temperatures", nargs="+", type=float, metavar="X", help="one or several (1)")
    add("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens only")
    add("--top-p", type=float, metavar="P", help="draw from the likeliest tokens that make up P")
    add("--length", type=int, metavar="N", help="tokens of a text; the model's length by default")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="draw a .png, .svg or .pdf, and keep the rows beside it, from where it goes on",
    )


def execute(args: Namespace) -> None:
    """The comparison of samplers, with the judge and the settings of published figures."""
    refuse(args, "generation", *_OTHERS)
    from unmask.api.judging import DEFAULT_JUDGE

    asked = Namespace(**vars(args))
    asked.judge = getattr(args, "judge", DEFAULT_JUDGE)
    asked.n = getattr(args, "samples", SAMPLES)
    asked.steps = steps(args, STEPS)
    asked.temperature = getattr(args, "temperatures", [1.0])
    compare.execute(asked, usual_sampler=True)


def steps(args: Namespace, usual: "tuple[int, ...]") -> list[int]:
    """The numbers of steps that were given."""
    given = getattr(args, "steps", usual)
    return [given] if isinstance(given, int) else list(given)


def refuse(args: Namespace, suite: str, *names: str) -> None:
    """An error for options that are for other measurements."""
    for name in names:
        if hasattr(args, name):
            raise UnmaskError(f"--{name.replace('_', '-')} does not go with --suite {suite}")
