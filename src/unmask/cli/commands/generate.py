"""unmask generate: text from a model."""

import argparse
from argparse import Namespace

from unmask.cli.parser import Commands, add_model, add_sampling, given
from unmask.errors import UnmaskError


def add(commands: Commands) -> None:
    summary = "write text, from nothing or after a prompt"
    parser = commands.add_parser("generate", help=summary, description=summary)
    add_model(parser)
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="may be given repeatedly")
    parser.add_argument(
        "--length",
        metavar="N",
        default=argparse.SUPPRESS,
        help="tokens, prompt included; auto: until the text ends",
    )
    parser.add_argument(
        "--no-stop",
        action="store_false",
        dest="stop",
        default=argparse.SUPPRESS,
        help="write all of the length, with no end",
    )
    add_sampling(parser)
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask.cli.output.written_texts import write

    options = given(args, "stop")
    if hasattr(args, "length"):
        options["length"] = _length(args.length)
    write(args, "generate", args.prompt, options)


def _length(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise UnmaskError(f"--length takes a number of tokens or auto, not {text!r}") from None
