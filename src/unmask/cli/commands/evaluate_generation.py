"""unmask evaluate --suite generation: what a model writes, judged, as a frontier beside real text."""

import argparse
from argparse import Namespace
from pathlib import Path

from unmask.cli.commands import compare
from unmask.cli.parser import Parser, list_of, refuse_others
from unmask.errors import UnmaskError

STEPS = (8, 32, 128)
SAMPLES = 256
WRITING = (
    "data", "judge", "judge_prefix", "samples", "samplers", "steps", "temperatures", "seed", "batch",
)  # fmt: skip


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
    add("--temperatures", type=list_of(float), metavar="X,X", help="one or several (1)")
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
    refuse_others(args, "--suite generation", *WRITING, "top_k", "top_p", "length", "out")
    if getattr(args, "samples", SAMPLES) < 1:
        raise UnmaskError(f"--samples must be 1 or more, not {args.samples}")
    from unmask.evaluation.judges.load_judge import DEFAULT_JUDGE

    asked = Namespace(**vars(args))
    asked.judge = getattr(args, "judge", DEFAULT_JUDGE)
    asked.n = getattr(args, "samples", SAMPLES)
    asked.temperature = getattr(args, "temperatures", [1.0])
    compare.execute(asked, usual_steps=STEPS)
