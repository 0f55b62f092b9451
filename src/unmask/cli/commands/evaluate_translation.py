"""unmask evaluate --suite translation: BLEU of what a model of pairs writes."""

import argparse
import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.output.tables import facts
from unmask.cli.parser import Parser, check_place, given, refuse_others

if TYPE_CHECKING:
    from unmask.evaluation.suites.translation import Translation

_OWN = ("decoding", "ending", "sources", "hypotheses")


def add(parser: Parser) -> None:
    options = parser.add_argument_group("translation suite", argument_default=argparse.SUPPRESS)
    options.add_argument(
        "--decoding",
        metavar="NAME",
        help="the sampler, NAME:field=value,… (confidence, or left_to_right)",
    )
    options.add_argument(
        "--ending",
        metavar="NAME",
        help="where a target ends: settled first (first, of a diffusion), or found as any word (free)",
    )
    options.add_argument("--sources", type=int, metavar="N", help="the first N sources only")
    options.add_argument(
        "--hypotheses",
        type=Path,
        metavar="FILE",
        help="write what was written, one a line, for each different source",
    )


def execute(args: Namespace) -> None:
    refuse_others(args, "--suite translation", "data", "seed", "batch", *_OWN)
    if hasattr(args, "hypotheses"):
        check_place(args.hypotheses)
    from unmask.evaluation.suites.translation import translate
    from unmask.model import load

    model = load(args.model, **given(args, "device", "precision", "compile"))
    options = given(args, "sources", "seed", "batch", "ending")
    if hasattr(args, "decoding"):
        options["sampler"] = args.decoding
    found = translate(model, getattr(args, "data", None), **options)
    if hasattr(args, "hypotheses"):
        lines = (" ".join(text.split()) + "\n" for text in found.hypotheses)
        args.hypotheses.write_text("".join(lines), encoding="utf-8")
    data = model.config.data
    conditions = {
        "data": getattr(
            args, "data", data.valid or f"{data.trained_on}, {data.holdout:.0%} held out"
        ),
        "fields": f"{data.source_field} to {data.target_field}",
        "decoding": _told(found.decoding),
    }
    if args.json:
        print(json.dumps({**conditions, **found.to_dict()}))
    else:
        _show(args.model, found, conditions)


def _told(decoding: dict[str, Any]) -> str:
    """The options that a text was written with."""
    ending = {"first": "its end first", "free": "its end as any word"}
    said = {"sampler": "", "strategy": "", "ending": ""}
    return ", ".join(
        f"{said.get(name, f'{name} ')}{ending.get(str(value), str(value))}"
        for name, value in decoding.items()
    )


def _show(title: str, found: "Translation", conditions: dict[str, str]) -> None:
    from rich.console import Console
    from rich.markup import escape

    score = found.bleu
    table = facts(title)
    undefined = "not defined: no reference has four words"
    table.add_row("BLEU", f"{score.score:.2f}  95% in {score.interval}" if score else undefined)
    table.add_row("exact", f"{found.exact:,} targets are a reference, word for word")
    table.add_row("sources", f"{len(found.sources):,}")
    table.add_row("references", f"{sum(map(len, found.references)):,}")
    table.add_row("network calls", f"{found.calls:.1f} a target")
    if found.too_long:
        table.add_row("too long", f"{found.too_long:,} sources, scored as if nothing was written")
    if found.unended:
        table.add_row("not ended", f"{found.unended:,} targets, cut at the end of the row")
    if score:
        table.add_row("signature", score.signature)
    for name, value in conditions.items():
        table.add_row(name, escape(value))
    Console().print(table)
