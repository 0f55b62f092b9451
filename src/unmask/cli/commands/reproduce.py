"""unmask reproduce: the paper's tables in small, ours beside the paper's."""

import argparse
import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.cli.parser import Commands, given
from unmask.likelihood.figure_text import signed

if TYPE_CHECKING:
    from unmask.report.elements import Table
    from unmask.reproduce.reproduced_tables import Line, Reproduction


def add(commands: Commands) -> None:
    summary = "train what a table of the paper needs, and print ours beside the paper's"
    parser = commands.add_parser("reproduce", help=summary, description=summary)
    parser.add_argument("table", metavar="TABLE", help="table1, table8, table11 or schedules")
    group = parser.add_argument_group("reproduction", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    add(
        "--scale",
        metavar="NAME",
        help="tiny: minutes on a CPU (default); small: minutes on a large GPU",
    )
    add("--data", metavar="SOURCE", help="the text to train on; scale tiny has its own")
    add(
        "--valid", metavar="SOURCE", help="the text to validate on; a part of the data unless given"
    )
    add(
        "--test", metavar="SOURCE", help="the text to measure on; what is validated on unless given"
    )
    add("--only", nargs="+", metavar="ROW", help="some rows of the table")
    add("--seeds", type=int, metavar="N", help="seeds of each row, at least (1; table1: 2 of mdlm)")
    add("--runs", type=Path, metavar="DIR", help="the folder of all runs (runs/reproduce-SCALE)")
    add(
        "--steps", type=int, metavar="N", help="training steps of each run, other than the recipe's"
    )
    add("--rows", type=int, metavar="N", help="validation rows that are measured; 0 is all")
    add("--draws", type=int, metavar="N", help="noise draws per row (8)")
    add("--device", metavar="NAME", help="cpu, cuda, mps; by default the best there is")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from rich.console import Console

    from unmask.reproduce.reproduced_tables import reproduce
    from unmask.reproduce.scaled_runs import Request

    log = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(line: str) -> None:
        log.print(line, markup=False)

    steps = [("training.steps", str(args.steps))] if hasattr(args, "steps") else []
    names = ("table", "scale", "data", "valid", "test", "only", "seeds", "runs", "device")
    request = Request(
        **given(args, *names), budget=given(args, "rows", "draws"), overrides=steps, say=say
    )
    try:
        found = reproduce(request)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(*stop.args, "the same command goes on") from None
    if args.json:
        print(json.dumps(found.to_dict()))
    else:
        _show(found)


def _show(found: "Reproduction") -> None:
    from rich.console import Console

    from unmask.cli.output.tables import show_tables
    from unmask.report.elements import Table, setting
    from unmask.report.run_report import differences

    columns = ["row", f"ours ({found.figure})", "paper", "nats / token"]
    rows = [[line.row, _ours(line), _paper(line), _nats(line)] for line in found.lines]
    show_tables([Table(found.published.title, columns, rows), _runs(found)])
    if differing := differences(found.runs):
        names = [run.name for run in found.runs]
        cells = [[name, *map(setting, values)] for name, values in differing.items()]
        show_tables([Table("Settings that differ", ["setting", *names], cells)])
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"paper: {found.published.setting}", markup=False)
    for each in found.agreement:
        if told := str(each):  # a single row agrees with nothing
            console.print(told, markup=False)


def _runs(found: "Reproduction") -> "Table":
    from unmask.report.elements import Table, clock

    columns = ["run", "non-embedding parameters", "tokens", "time", "seed"]
    rows = [
        [
            run.name,
            f"{run.parameters.non_embedding:,}",
            f"{run.tokens:,}",
            clock(run.seconds),
            str(run.config.seed),
        ]
        for run in found.runs
    ]
    if len(rows) > len(found.lines):  # some line is the mean of several
        own = {name: value for line in found.lines for name, value in line.facts.items()}
        columns.append("nats / token")
        for row in rows:
            row.append(f"{own[f'nats_{row[0]}']:.4f}")
    return Table("Runs", columns, rows)


def _ours(line: "Line") -> str:
    from unmask.report.elements import figure

    return signed(line.certificate, figure(line.ours, line.error, line.freedom))


def _paper(line: "Line") -> str:
    return signed(line.certificate, f"{line.paper:.2f}")


def _nats(line: "Line") -> str:
    from unmask.likelihood.figure_text import with_error

    facts = line.facts
    told = with_error(facts["nats"], facts["nats_error"], facts.get("nats_freedom", line.freedom))
    return told if line.certificate == "exact" else signed("upper", told)
