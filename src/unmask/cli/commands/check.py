"""unmask check: whether everything in a run folder is what was written."""

import json
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands
from unmask.errors import UnmaskError


def add(commands: Commands) -> None:
    summary = "verify everything in a run folder or an exported model"
    parser = commands.add_parser("check", help=summary, description=summary)
    parser.add_argument(
        "folder", type=Path, metavar="RUN", help="a run folder or an exported model"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask import shipped
    from unmask.runs.inspect import inspect

    parts = inspect(shipped.locate(args.folder))
    damaged = [part for part in parts if part.problems]
    for part in parts if not args.json else ():
        print(f"{'damaged' if part.problems else 'intact':<8} {part.name}{_told(part.problems)}")
    if args.json:
        print(json.dumps({part.name: list(part.problems) for part in parts}, indent=1))
    if damaged:
        raise UnmaskError(
            f"{args.folder}: {len(damaged)} of {len(parts)} parts are damaged{_outlook(args.folder)}"
        )


def _told(problems: tuple[str, ...]) -> str:
    return ": " + "; ".join(problems) if problems else ""


def _outlook(folder: Path) -> str:
    """What training would make of it."""
    from unmask.runs.inspect import last_step
    from unmask.training.checkpoints.checkpoint import by_step

    if not by_step(folder):
        return ""
    step = last_step(folder)
    return (
        f"; training would go on from step {step}" if step is not None else "; none can be resumed"
    )
