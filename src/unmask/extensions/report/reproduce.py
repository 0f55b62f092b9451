"""unmask reproduce: tables of the MDLM paper at a small scale, next to the published figures."""

import argparse
import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.cli.parser import Commands, add_examples, given
from unmask.likelihood.figure_text import signed

if TYPE_CHECKING:
    from unmask.cli.output.elements import Table
    from unmask.extensions.report.reproduced_tables import Line, Reproduction

GROUP = "measure"


def add(commands: Commands) -> None:
    summary = "train the models of a table of the MDLM paper and print it next to the paper's"
    parser = commands.add_parser("reproduce", help=summary, description=summary)
    parser.add_argument(
        "table", metavar="TABLE", help="table of the paper: table1, table8, table11 or schedules"
    )
    group = parser.add_argument_group("reproduction", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    add(
        "--scale",
        metavar="NAME",
        help="scale: tiny, minutes on a CPU, or small, minutes on a large GPU (tiny)",
    )
    add("--data", metavar="SOURCE", help="training text; scale tiny has its own")
    add("--valid", metavar="SOURCE", help="validation text; by default a part of the training text")
    add("--test", metavar="SOURCE", help="test text; by default the validation text")
    add("--only", nargs="+", metavar="ROW", help="rows of the table to reproduce; by default all")
    add(
        "--seeds",
        type=int,
        metavar="N",
        help="least number of seeds per row (1; table1: 2 of mdlm)",
    )
    add("--runs", type=Path, metavar="DIR", help="folder of the runs (runs/reproduce-SCALE)")
    add(
        "--steps", type=int, metavar="N", help="training steps of each run; by default the recipe's"
    )
    add("--rows", type=int, metavar="N", help="validation rows to measure, 0 for all")
    add("--draws", type=int, metavar="N", help="noise draws per row (8)")
    add("--device", metavar="NAME", help="cpu, cuda or mps; by default the fastest available")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_examples(
        parser,
        "unmask reproduce table8",
        "unmask reproduce table1 --only mdlm ar --seeds 2 --json",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from rich.console import Console

    from unmask.extensions.report.reproduced_tables import reproduce
    from unmask.extensions.report.scaled_runs import Request

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
        raise KeyboardInterrupt(*stop.args, "the same command continues") from None
    if args.json:
        print(json.dumps(found.to_dict()))
    else:
        _show(found)


def _show(found: "Reproduction") -> None:
    from rich.console import Console

    from unmask.cli.output.elements import Table, setting
    from unmask.cli.output.tables import show_tables
    from unmask.runs.run_folder import differences

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
        if line := str(each):  # empty for a single row
            console.print(line, markup=False)


def _runs(found: "Reproduction") -> "Table":
    from unmask.cli.output.elements import Table, clock

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
    if len(rows) > len(found.lines):  # a line may be the mean of several runs
        facts = {name: value for line in found.lines for name, value in line.facts.items()}
        columns.append("nats / token")
        for row in rows:
            row.append(f"{facts[f'nats_{row[0]}']:.4f}")
    return Table("Runs", columns, rows)


def _ours(line: "Line") -> str:
    from unmask.cli.output.elements import figure

    return signed(line.certificate, figure(line.ours, line.error, line.freedom))


def _paper(line: "Line") -> str:
    return signed(line.certificate, f"{line.paper:.2f}")


def _nats(line: "Line") -> str:
    from unmask.likelihood.figure_text import with_error

    facts = line.facts
    nats = with_error(facts["nats"], facts["nats_error"], facts.get("nats_freedom", line.freedom))
    return nats if line.certificate == "exact" else signed("upper", nats)
