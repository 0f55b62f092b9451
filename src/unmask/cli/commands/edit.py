"""unmask edit: part of a text written anew."""

import argparse
import re
import sys
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands, add_model, add_sampling, given
from unmask.errors import UnmaskError


def add(commands: Commands) -> None:
    summary = "mask part of a text and write it anew; the rest stays"
    parser = commands.add_parser("edit", help=summary, description=summary)
    add_model(parser)
    parser.add_argument("file", metavar="FILE", help="the text; - is standard input")
    group = parser.add_argument_group("what to rewrite", argument_default=argparse.SUPPRESS)
    group.add_argument("--remask", type=float, metavar="X", help="this share of the tokens")
    group.add_argument("--remask-span", metavar="A:B", help="the tokens from A up to B")
    group.add_argument(
        "--remask-uncertain", type=int, metavar="N", help="the N tokens that fit least"
    )
    add_sampling(parser)
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask.cli.output.written_texts import write

    what = given(args, "remask", "remask_uncertain")
    if hasattr(args, "remask_span"):
        what["remask_span"] = _span(args.remask_span)
    write(args, "edit", _text(args.file), what)


def _span(text: str) -> tuple[int, int]:
    places = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text, re.ASCII)
    if places is None:
        raise UnmaskError(f"--remask-span takes two places such as 10:40, not {text[:40]!r}")
    return int(places[1]), int(places[2])


def _text(file: str) -> str:
    """A file's text, without the line end behind it."""
    if file != "-" and not Path(file).is_file():
        raise UnmaskError(f"no file {file}: give a text to edit, or - for standard input")
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UnmaskError(f"{file} is not UTF-8: byte {error.start} is not text") from None
