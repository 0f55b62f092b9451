"""unmask generate: text from a model."""

import argparse
import json
from argparse import Namespace
from dataclasses import asdict

from unmask.cli.parser import SAMPLING, Commands, add_model, add_sampling, given


def add(commands: Commands) -> None:
    summary = "write text, from nothing or after a prompt"
    parser = commands.add_parser("generate", help=summary, description=summary)
    add_model(parser)
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="may be given repeatedly")
    parser.add_argument(
        "--length", type=int, metavar="N", default=argparse.SUPPRESS, help="tokens, prompt included"
    )
    add_sampling(parser)
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask import api

    model = api.load(args.model, **given(args, "device"))
    results = model.generate(args.prompt, **given(args, "length", *SAMPLING))
    if args.json:
        print(*(json.dumps(asdict(result)) for result in results), sep="\n")
    else:
        print(*results, sep="\n\n")
