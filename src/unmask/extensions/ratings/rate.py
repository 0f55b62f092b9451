"""unmask rate: blind ratings of texts in the browser, and their report."""

import argparse
import json
import threading
import webbrowser
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.commands.serve import check_installed, listen, models_by_name
from unmask.cli.output.tables import say, show_tables
from unmask.cli.parser import Commands, add_examples, add_options, given
from unmask.errors import UnmaskError
from unmask.extension import attachments
from unmask.files.lock import only_user
from unmask.files.storage import check_place
from unmask.generation.sampling_params import sampling_options

if TYPE_CHECKING:
    from unmask.evaluation.metrics.bootstrap import Figure
    from unmask.extensions.ratings.rating_file import RatingFile
    from unmask.extensions.ratings.rating_report import RatingReport

GROUP = "measure"

HOST, PORT = "127.0.0.1", 8771
_WITHOUT_PROMPTS = 20  # comparisons of each pair of models
_OTHERS = ("n", "guide", *attachments())  # sampling options of other commands
_REQUEST = ("prompts", "n", "length", "checks", "real")


def add(commands: Commands) -> None:
    summary = "compare texts of models blindly in the browser, and report the votes"
    parser = commands.add_parser("rate", help=summary, description=summary)
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="*",
        help="two or more models or files of texts; NAME=MODEL sets the name in the report",
    )
    parser.add_argument(
        "--report",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="print win rates, Bradley–Terry scores and agreement of the votes in files",
    )
    parser.add_argument(
        "--least-checks",
        type=float,
        default=0.8,
        metavar="X",
        help="share of attention checks that a rater must pass to count in the report (0.8)",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add = parser.add_argument_group("texts", argument_default=argparse.SUPPRESS).add_argument
    add("--prompts", metavar="FILE", help="file with a prompt on each line")
    add(
        "--n",
        type=int,
        metavar="N",
        help="comparisons of each pair of models (one for each prompt, 20 without prompts)",
    )
    add("--length", type=int, metavar="N", help="tokens of a text; by default the model's")
    add(
        "--checks",
        type=int,
        metavar="N",
        help="attention checks (one for ten texts of a model, from 2 to 12)",
    )
    add("--real", metavar="FILE", help="file of real texts for attention checks")
    add("--device", help="cpu, cuda or mps; by default the fastest available")
    add = parser.add_argument_group("page").add_argument
    add(
        "--out",
        type=Path,
        default=Path("ratings.jsonl"),
        metavar="FILE",
        help="file of texts and votes; an existing one is resumed (ratings.jsonl)",
    )
    add("--port", type=int, default=PORT, metavar="N", help=f"port on {HOST}, 0 for any ({PORT})")
    add("--no-browser", action="store_true", help="print the address without opening a browser")
    add_options(parser, _sampling(), "sampling")
    add_examples(
        parser,
        "unmask rate stories stories-ar --prompts prompts.txt",
        "unmask rate old=old.jsonl new=new.jsonl --out votes.jsonl",
        "unmask rate --report votes.jsonl",
    )
    parser.set_defaults(execute=execute)


def _sampling() -> list[Any]:
    return [one for one in sampling_options("cli") if one.name not in _OTHERS]


def execute(args: Namespace) -> None:
    if args.report is not None:
        if args.models:
            raise UnmaskError("--report reads files of votes: leave the models out")
        _report(args)
        return
    if len(args.models) < 2:
        raise UnmaskError(
            "rate compares two models or files of texts: name two, or give --report FILE"
        )
    check_installed("rating")
    check_place(args.out)
    models = models_by_name(args.models)
    with listen(HOST, args.port) as listening:
        file = _file(args, models)
        from unmask.extensions.ratings.rating_routes import rating_router
        from unmask.serve.app import create_app
        from unmask.serve.execution.engine import Engine
        from unmask.serve.limits import ServerLimits
        from unmask.serve.server import address, serve

        def ready() -> None:
            at = address(listening)
            print(
                f"{len(file.comparisons)} comparisons at {at}, votes in {args.out} (Ctrl-C ends)",
                flush=True,
            )
            if not args.no_browser:
                threading.Thread(target=webbrowser.open, args=[at], daemon=True).start()

        engine, settings = Engine({}), ServerLimits(grace=1.0)
        app = create_app(engine, settings, [rating_router(file)])
        with only_user(args.out):
            serve(app, engine, settings, listening, ready)


def _file(args: Namespace, models: dict[str, str]) -> "RatingFile":
    """The file of ratings: an existing one of the same arguments, or a new one with new texts."""
    from unmask.extensions.ratings.comparisons import PASSAGES, attention_checks, compare_texts
    from unmask.extensions.ratings.rated_texts import read_lines, texts_to_rate
    from unmask.extensions.ratings.rating_file import RatingFile

    options = given(args, *(one.name for one in _sampling()))
    request = {"models": models, **given(args, *_REQUEST), **options}
    if args.out.exists():
        file = RatingFile.read(args.out)
        if file.request != json.loads(json.dumps(request)):
            raise UnmaskError(
                f"{args.out} holds ratings of other arguments: give another --out, or the arguments "
                "of its first start"
            )
        return file
    prompts = read_lines(args.prompts) if hasattr(args, "prompts") else []
    n = getattr(args, "n", len(prompts) or _WITHOUT_PROMPTS)
    if n < 1:
        raise UnmaskError(f"--n must be 1 or more, not {n}")
    checks = getattr(args, "checks", min(max(2, n // 10), PASSAGES))
    real = read_lines(args.real) if hasattr(args, "real") else None
    seed = options.get("seed", 0)
    attention = attention_checks(checks, real, seed)  # before models generate texts
    asked = [prompts[number % len(prompts)] if prompts else "" for number in range(n)]
    texts = texts_to_rate(
        models, asked, {**given(args, "length"), **options}, given(args, "device"), say
    )
    return RatingFile.create(args.out, request, [*compare_texts(texts, asked), *attention])


def _report(args: Namespace) -> None:
    from unmask.extensions.ratings.rating_file import RatingFile
    from unmask.extensions.ratings.rating_report import rating_report
    from unmask.files.jsonl import finite_json

    report = rating_report([RatingFile.read(path) for path in args.report], args.least_checks)
    if args.json:
        print(json.dumps(finite_json(asdict(report))))
    else:
        _show(report)


def _show(report: "RatingReport") -> None:
    from unmask.cli.output.elements import Table

    rates = [
        [
            *one.names,
            *_cells(one.rate, "{:.0%}"),
            *map(str, (one.wins, one.ties, one.losses, one.comparisons)),
        ]
        for one in report.win_rates
    ]
    scores = [[name, *_cells(score, "{:+.2f}")] for name, score in report.scores.items()]
    raters = [
        [one.name, str(one.votes), f"{one.passed} of {one.checks}", "yes" if one.used else "no"]
        for one in report.raters
    ]
    columns = [
        "model",
        "against",
        "win rate",
        "95% interval",
        "wins",
        "ties",
        "losses",
        "comparisons",
    ]
    show_tables(
        [
            Table("Win rates (a tie is half a win)", columns, rates),
            Table("Bradley–Terry scores", ["model", "score", "95% interval"], scores),
            Table("Raters", ["rater", "votes", "checks passed", "counted"], raters),
        ]
    )
    if report.agreement is None:
        print(
            "Agreement: none, since no two raters compared the same texts, or all votes are equal"
        )
    else:
        value, interval = _cells(report.agreement, "{:.2f}")
        print(
            f"Agreement (Krippendorff's alpha): {value}, 95% {interval}, {report.shared} comparisons"
        )


def _cells(figure: "Figure", form: str) -> Sequence[str]:
    known = figure.high < float("inf")
    interval = f"{form.format(figure.low)} to {form.format(figure.high)}" if known else "unknown"
    return form.format(figure.value), interval
