"""unmask export: a run's EMA weights as a folder that `unmask.load` reads."""

import argparse
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands, given
from unmask.errors import UnmaskError


def add(commands: Commands) -> None:
    summary = "write a model without its training state to a folder of its own"
    parser = commands.add_parser("export", help=summary, description=summary)
    parser.add_argument("model", metavar="MODEL", help="a run, an exported or a shipped model")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to write it")
    parser.add_argument(
        "--precision",
        default=argparse.SUPPRESS,
        metavar="TYPE",
        help="of the weights in the file: fp32, or bf16, half as large",
    )
    parser.add_argument(
        "--default",
        action="append",
        default=argparse.SUPPRESS,
        metavar="NAME=VALUE",
        help="how it writes unless told otherwise, as length=200 or steps=32; repeatable",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    options = given(args, "precision")
    if hasattr(args, "default"):
        options["defaults"] = dict(map(_pair, args.default))
    from unmask import api

    api.load(args.model).save(args.folder, **options)
    print(f"{args.folder} is ready: unmask generate {args.folder}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UnmaskError(f"--default takes NAME=VALUE such as steps=32, not {text!r}")
    return name, value
