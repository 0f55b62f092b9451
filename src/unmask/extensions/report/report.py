"""unmask report: tables of runs in the terminal, or one HTML page with plots."""

import argparse
import json
import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.output.tables import show_tables
from unmask.cli.parser import Commands, add_examples, given
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.extensions.report.run_report import RunReport

GROUP = "measure"


def add(commands: Commands) -> None:
    summary = "compare runs: settings, loss, bound by T, variance by schedule, samples"
    parser = commands.add_parser("report", help=summary, description=summary)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder; several are compared")
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="HTML page to write, with plots and for offline use",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each run")
    parser.add_argument(
        "--no-measure", action="store_true", help="show stored measurements only, compute none"
    )
    group = parser.add_argument_group("measure", argument_default=argparse.SUPPRESS)
    group.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="first validation rows to measure, 0 for all (all; 64 by T and by schedule)",
    )
    group.add_argument("--draws", type=int, metavar="N", help="noise draws per row (8)")
    group.add_argument("--seed", type=int, metavar="N", help="seed of the draws (0)")
    group.add_argument("--device", help="cpu, cuda or mps; by default the fastest available")
    add_examples(
        parser,
        "unmask report runs/demo",
        "unmask report runs/demo runs/cosine --html report.html",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    if args.html is not None:
        _check(args.html)
    from rich.console import Console

    from unmask.extensions.report.measurements import Budget
    from unmask.extensions.report.run_report import report_run
    from unmask.runs.run_folder import read_runs

    runs = read_runs(args.runs)
    budget = None if args.no_measure else Budget(**given(args, "rows", "draws", "seed"))
    log = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(line: str) -> None:
        log.print(line, markup=False)

    reports = [report_run(run, budget, **given(args, "device"), say=say) for run in runs]
    if args.json:
        for report in reports:
            print(json.dumps(_plain(report)))
    if args.html is not None:
        _write(args.html, reports)
    elif not args.json:
        _show(reports)


def _check(html: Path) -> None:
    """Raises an error, before anything is measured, if the page cannot be drawn or written."""
    from unmask.extensions.report.plots import need_matplotlib

    need_matplotlib()
    if html.is_dir():
        raise UnmaskError(f"--html {html} is a folder: give the name of a file")
    if not html.parent.is_dir():
        raise UnmaskError(f"--html {html}: there is no folder {html.parent}; make it first")


def _write(html: Path, reports: "Sequence[RunReport]") -> None:
    from unmask.extensions.report.html_page import page
    from unmask.extensions.report.sections import sections

    names = ", ".join(report.run.name for report in reports)
    temporary = html.with_name(f".{html.name}.building")
    temporary.write_text(page(f"Report: {names}", sections(reports)), encoding="utf-8")
    os.replace(temporary, html)
    print(f"wrote {html}")


def _show(reports: "Sequence[RunReport]") -> None:
    from rich.console import Console

    from unmask.extensions.report.sections import sections

    console = Console(highlight=False, soft_wrap=True)
    for section in sections(reports):
        console.print(f"\n{section.title}", style="bold", markup=False)
        console.print(section.note, style="dim", markup=False)
        show_tables(section.tables)
        for name, text in section.texts:
            console.print(f"\n{name}:", style="dim", markup=False)
            console.print(text, markup=False)


def _plain(report: "RunReport") -> dict[str, Any]:
    """The figures of a run for JSON."""
    from unmask.config.run_config import to_dict
    from unmask.extensions.report.measurements import figures

    run = report.run
    return {
        "run": str(run.folder),
        "config": to_dict(run.config),
        **asdict(report.parameters),
        "step": run.step,
        "tokens": run.tokens,
        "seconds": run.seconds,
        "losses": run.losses,
        "validations": run.validations,
        "bound": report.bound and figures(report.bound),
        "by_steps": [figures(point) for point in report.by_steps],
        "schedules": {name: figures(spread) for name, spread in report.schedules.items()},
        "frontiers": {
            file: [row.to_dict() for row in rows] for file, rows in report.frontiers.items()
        },
        "samples": report.samples,
    }
