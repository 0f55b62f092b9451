"""unmask export: a run's EMA weights as a folder that `unmask.load` reads."""

from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands


def add(commands: Commands) -> None:
    summary = "write a model without its training state to a folder of its own"
    parser = commands.add_parser("export", help=summary, description=summary)
    parser.add_argument("model", metavar="MODEL", help="a run folder or an exported model")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to write it")
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask import api

    api.load(args.model).save(args.folder)
    print(f"{args.folder} is ready: unmask generate {args.folder}")
