"""unmask runs and check: the state of runs, and the verification of a folder."""

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.cli.parser import Commands, add_examples
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.runs.inspect import RunStatus

GROUP = "look"


def add(commands: Commands) -> None:
    _add_runs(commands)
    _add_check(commands)


def _add_runs(commands: Commands) -> None:
    summary = "list runs with their step, state, bound, size and damage"
    parser = commands.add_parser("runs", help=summary, description=summary)
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        nargs="?",
        default=Path("runs"),
        help="folder of runs, or a run folder (runs)",
    )
    parser.add_argument("--fast", action="store_true", help="skip the search for damage")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_examples(parser, "unmask runs", "unmask runs experiments --fast --json")
    parser.set_defaults(execute=runs)


def _add_check(commands: Commands) -> None:
    summary = "verify all files of a run folder or an exported model"
    parser = commands.add_parser("check", help=summary, description=summary)
    parser.add_argument("folder", type=Path, metavar="RUN", help="run folder or exported model")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_examples(parser, "unmask check runs/demo", "unmask check stories --json")
    parser.set_defaults(execute=check)


def runs(args: Namespace) -> None:
    from unmask.runs.inspect import is_run, status_of

    if not args.folder.is_dir():
        raise UnmaskError(
            f"no folder {str(args.folder)!r}: give a folder of runs, or make a run with 'unmask train'"
        )
    inside = sorted(path for path in args.folder.iterdir() if path.is_dir() and is_run(path))
    folders = [args.folder] if is_run(args.folder) else inside
    found = [status_of(run, thorough=not args.fast) for run in folders]
    if args.json:
        print(json.dumps([{**asdict(each), "run": str(each.run)} for each in found], indent=1))
    elif found:
        _print(found)
    else:
        print(f"there are no runs in {args.folder}")


def _print(found: "list[RunStatus]") -> None:
    from rich.table import Table

    from unmask.cli.output.tables import print_whole, size_text
    from unmask.training.logs.progress import bound

    table = Table("run", "state")
    for column in ("step", "bound", "size"):
        table.add_column(column, justify="right")
    table.add_column("damaged")
    for each in found:
        step = f"{each.step:,}" + (f" / {each.steps:,}" if each.steps else "")
        nats = "–" if each.nats is None else bound(each.nats, each.error or 0.0)
        damaged = "not checked" if each.damaged is None else ", ".join(each.damaged) or "no"
        table.add_row(str(each.run), each.state, step, nats, size_text(each.size), damaged)
    print_whole(table)


def check(args: Namespace) -> None:
    from unmask import shipped
    from unmask.runs.inspect import inspect

    parts = inspect(shipped.locate(args.folder))
    damaged = [part for part in parts if part.problems]
    for part in parts if not args.json else ():
        print(
            f"{'damaged' if part.problems else 'intact':<8} {part.name}{_problem_list(part.problems)}"
        )
    if args.json:
        print(json.dumps({part.name: list(part.problems) for part in parts}, indent=1))
    if damaged:
        raise UnmaskError(
            f"{args.folder}: {len(damaged)} of {len(parts)} parts are damaged{_resume_note(args.folder)}"
        )


def _problem_list(problems: tuple[str, ...]) -> str:
    return ": " + "; ".join(problems) if problems else ""


def _resume_note(folder: Path) -> str:
    """The end of the error: the step that training would resume from; empty without checkpoints."""
    from unmask.runs.inspect import last_step
    from unmask.training.checkpoints.checkpoint import by_step

    if not by_step(folder):
        return ""
    step = last_step(folder)
    if step is None:
        return "; no checkpoint can be resumed"
    return f"; training would resume from step {step}"
