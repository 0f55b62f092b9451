"""unmask play: the playground in a browser."""

import argparse
from argparse import Namespace

from unmask.cli.parser import Commands, given

PORT = 8770


def add(commands: Commands) -> None:
    summary = "watch and edit text forming, in the browser"
    parser = commands.add_parser("play", help=summary, description=summary)
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="*",
        help="run folders, exported models or shipped ones; all that ship unless given",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help=f"where to listen, on this machine only; {PORT} unless given, or a free one if it is taken",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address and open nothing"
    )
    parser.add_argument(
        "--device", default=argparse.SUPPRESS, help="cpu, cuda, mps; by default the best there is"
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask.cli.playing import play

    play(args.models, not args.no_browser, getattr(args, "port", None), **given(args, "device"))
