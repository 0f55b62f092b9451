"""unmask evaluate --suite zero-shot: a model on the paper's zero-shot sets, as one table."""

import argparse
import json
from argparse import Namespace
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from unmask.cli.output.tables import print_whole
from unmask.cli.parser import Parser, given, refuse_others
from unmask.errors import UnmaskError
from unmask.likelihood.figure_text import signed

if TYPE_CHECKING:
    from rich.table import Table

    from unmask.evaluation.suites.zero_shot import SetRow

_NOTES = 48  # columns that the preprocessing has at least
_LOADING = ("device", "precision", "compile")
_MEASURING = ("sets", "folder", "draws", "seed", "batch", "limit")


def add(parser: Parser) -> None:
    options = parser.add_argument_group("zero-shot suite", argument_default=argparse.SUPPRESS)
    options.add_argument(
        "--sets",
        nargs="+",
        metavar="NAME",
        help="ptb, wikitext, lm1b, lambada, ag_news, pubmed, arxiv (all)",
    )
    options.add_argument(
        "--folder", metavar="DIR", help="where the sets lie; without it they come from the hub"
    )
    options.add_argument(
        "--limit", type=int, metavar="N", help="measure the first N rows of each set only"
    )


def execute(args: Namespace) -> None:
    refuse_others(args, "--suite zero-shot, whose sets are pinned", *_MEASURING)
    from rich.console import Console

    from unmask.cli.output.suite_table import say_unused
    from unmask.evaluation.suites.zero_shot import zero_shot
    from unmask.model import load

    console = Console(stderr=True, highlight=False)
    model = load(args.model, **given(args, *_LOADING))
    # what all rows depend on beside the model's weights
    conditions = {
        "model": args.model,
        "tokenizer": f"{model.config.data.tokenizer.kind} {model.tokenizer.vocabulary.size}",
        "precision": model.precision,
    }

    def done(row: "SetRow") -> None:
        if args.json:
            print(json.dumps({**conditions, **row.to_dict()}), flush=True)

    quiet = args.json or not console.is_terminal
    with nullcontext() if quiet else console.status("measuring"):
        rows = zero_shot(model, **given(args, *_MEASURING), done=done)
    if not args.json:
        _show(", ".join(conditions.values()), rows)
    for bound in [row.bound for row in rows if row.bound][:1]:  # those of a model are alike
        say_unused(args, bound)
    if all(row.absent for row in rows):
        instead = "" if hasattr(args, "folder") else "; --folder DIR takes them from files"
        raise UnmaskError(f"none of the sets could be had: the reasons are above{instead}")


def _show(title: str, rows: "list[SetRow]") -> None:
    # only the last column gives way
    print_whole(_table(title, rows), max(0, max(len(_notes(row)) for row in rows) - _NOTES))
    for row in rows:
        if row.source:
            print(f"{row.set}: {row.source}")


def _table(title: str, rows: "list[SetRow]") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from unmask.likelihood.figure_text import with_error

    length = rows[0].length
    frame = f"one stream cut into rows of {length}: BOS, {length - 2} tokens, EOS{_draws(rows)}"
    table = Table(title=Text(f"{title}: {frame}"), box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("set")
    for name in ("perplexity", "bits / byte", "per word", "tokens", "documents"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("preprocessing", overflow="fold")
    for row in rows:
        if row.bound is None:
            table.add_row(row.set, "absent", "", "", "", "", Text(_notes(row)))
            continue
        bound = row.bound
        token, byte, word = (
            with_error(bound.perplexity, bound.perplexity_error, bound.freedom),
            with_error(bound.bits_per_byte, bound.bits_per_byte_error, bound.freedom),
            with_error(row.perplexity_per_word, row.perplexity_per_word_error, bound.freedom),
        )
        sign = partial(signed, bound.certificate)
        about = "≈ {}".format if bound.unknown else sign  # of a text with unknown parts: no bound
        table.add_row(
            row.set,
            *(sign(token), about(byte), about(word)),
            f"{bound.tokens:,}",
            f"{row.documents:,}",
            Text(_notes(row)),
        )
    return table


def _draws(rows: "list[SetRow]") -> str:
    """How many draws the errors come from, and how many would halve them; an exact figure needs none."""
    noisy = [row.bound for row in rows if row.bound and row.bound.error]
    if not noisy:
        return ""
    if noisy[0].draws_to_halve is None:
        return "; 1 draw, so errors are those over texts"
    return f"; {noisy[0].draws} draws, {noisy[0].draws_to_halve} to halve the errors"


def _notes(row: "SetRow") -> str:
    """Why there is no figure, or all that it depends on beside the model."""
    unknown = row.bound.unknown if row.bound else 0
    foreign = f"{unknown:,} tokens of what the tokenizer has none for" if unknown else ""
    return row.absent or "; ".join(filter(None, (row.preprocessing, row.note, foreign)))
