"""unmask evaluate: runs a suite on a model; the default suite is `likelihood`."""

import argparse
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from unmask.cli.checks import check_model, check_source
from unmask.cli.output.suite_table import Bar, show
from unmask.cli.parser import (
    Commands,
    Parser,
    add_arithmetic,
    add_examples,
    add_options,
    given,
    group_of,
)
from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import SUITES
from unmask.files.storage import check_place
from unmask.options import options_of

GROUP = "measure"

DEFAULT_SUITE = "likelihood"
_LOADING = ("device", "precision", "compile")
_MORE = f"""\
'unmask evaluate SUITE --help' shows the options of a suite. 'unmask evaluate MODEL' is short for
'unmask evaluate {DEFAULT_SUITE} MODEL'. A suite takes precedence over a folder of the same name.
"""


def add(commands: Commands) -> None:
    summary = "measure a model: perplexity, or another suite of measurements"
    parser = commands.add_parser(
        "evaluate",
        help=summary,
        description=summary,
        usage="%(prog)s [SUITE] MODEL [options]",
        epilog=_MORE,
        default_command=DEFAULT_SUITE,
    )
    add_examples(
        parser,
        "unmask evaluate runs/demo --data notes.txt --draws 16",
        "unmask evaluate generation stories --data notes.txt --judge self",
    )
    suites = parser.add_subparsers(title="suites", metavar="SUITE", prog=parser.prog)
    for name, about in SUITES.summaries().items():
        own = suites.add_parser(
            name, help=about, description=about, usage="%(prog)s MODEL [options]"
        )
        own.set_defaults(execute=execute, suite=name)
        _add_suite(own, name)


def _add_suite(parser: Parser, name: str) -> None:
    """Adds the arguments of a suite: model, measurement, judge and output."""
    suite = SUITES[name]
    if suite.examples:
        add_examples(parser, *(f"{parser.prog} {example}" for example in suite.examples))
    group = parser.add_argument_group("model", argument_default=argparse.SUPPRESS)
    about = "shipped model ('unmask models'), run folder or exported model"
    about = ", ".join(filter(None, (about, suite.reads)))
    group.add_argument("model", metavar="MODEL", nargs="?", default=None, help=about)
    group.add_argument("--device", help="cpu, cuda or mps; by default the fastest available")
    add_arithmetic(group)
    for title in ("measurement", "judge", "output"):
        group_of(parser, title)
    output = group_of(parser, "output")
    output.add_argument("--json", action="store_true", help="print a JSON object for each row")
    output.add_argument("--save", type=Path, metavar="FILE", help="file for the output of --json")
    add_options(parser, options_of(suite.Options, "cli"), "measurement")


def execute(args: Namespace) -> None:
    suite = SUITES.build(args.suite)
    options = suite.Options(**given(args, *(one.name for one in options_of(suite.Options))))
    if args.save is not None:
        check_place(args.save)
    measured: list[Any] = []
    lines: list[str] = []
    name = {} if args.model is None else {"model": args.model}
    saved = suite.saved(args.model, options)
    if saved is not None and (loading := given(args, *_LOADING)):
        raise UnmaskError(
            f"--{next(iter(loading))} is for a model, and {args.model or 'the file'} holds saved "
            "rows: leave it out"
        )
    try:
        with Bar(quiet=args.json) as bar:
            rows = suite.rows(_load(args), options, bar) if saved is None else saved
            for row in rows:
                measured.append(row)
                lines.append(json.dumps({**name, **suite.to_dict(row)}))
                if args.json:
                    print(lines[-1], flush=True)
                bar.done(suite.cells(row))
    except UnmaskError:
        if not args.json:
            show(suite, measured, args.model)
        raise
    if args.save is not None:
        args.save.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if not args.json:
        show(suite, measured, args.model)


def _load(args: Namespace) -> Any:
    if args.model is None:
        raise UnmaskError(
            f"the following arguments are required: MODEL; see 'unmask evaluate {args.suite} --help'"
        )
    check_model(args.model)
    for one in options_of(SUITES[args.suite].Options, "cli"):
        if one.metavar == "SOURCE" and getattr(args, one.name, None) is not None:
            check_source(getattr(args, one.name))
    from unmask.model import load

    return load(args.model, **given(args, *_LOADING))
