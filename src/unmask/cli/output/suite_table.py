"""Rows of a comparison as a table for people, with what its figures depend on."""

import math
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unmask.cli.output.tables import print_whole, say
from unmask.cli.parser import given
from unmask.likelihood.figure_text import signed, with_error

if TYPE_CHECKING:
    from rich.table import Table

    from unmask.evaluation.suites.sample_rows import Row
    from unmask.likelihood.bound import Bound


def say_unused(args: Namespace, bound: "Bound") -> None:
    """A figure without noise needs neither draws nor their seed: better said than ignored."""
    drawn = getattr(args, "order", None) == "random"  # by the seed
    unused = [name for name in given(args, "draws", "seed") if not (drawn and name == "seed")]
    if bound.certificate != "upper" and unused:
        names = " and ".join(f"--{name}" for name in unused)
        say(f"{names} change{'' if len(unused) > 1 else 's'} nothing: this figure has no noise")


_MANY = 200  # texts, from which MAUVE begins to tell
_PUBLISHED = ("openai-community/gpt2-large", "gpt2-large")  # the judge of published figures
_COLUMNS = {
    "perplexity": "perplexity",
    "bits_per_byte": "bits / byte",
    "entropy": "entropy",
    "mauve": "MAUVE",
    "distinct_2": "distinct-2",
    "repetition": "repeated-4",
}


def show(rows: "Sequence[Row]") -> None:
    """The table, and notes below it."""
    from rich.console import Console

    print_whole(_table(rows))
    console = Console(highlight=False)
    for note in notes(rows):
        console.print(note, markup=False, soft_wrap=True)


def notes(rows: "Sequence[Row]") -> list[str]:
    """What figures depend on: who judged, and what the brackets are."""
    judges = list(dict.fromkeys(row.judge for row in rows if row.judge))
    lines = [f"judge: {name}" for name in judges]
    measured = [row for row in rows if row.mauve is not None]
    if not all(published(row.judge or "") for row in rows):  # older rows are by runs
        what = "perplexity and MAUVE" if measured else "perplexity"
        lines.append(f"not GPT-2-large: {what} cannot be compared with published ones")
    if measured and measured[0].n < _MANY:
        lines.append(f"MAUVE of {measured[0].n} texts has few clusters and says little")
    if any(row.intervals for row in rows):
        lines.append("[low, high]: 95% bootstrap over texts, BCa (MAUVE: normal, over seeds too)")
    return lines


def published(judge: str) -> bool:
    """Whether a judge's figures can be held against those of papers."""
    return judge.partition(" after ")[0] in _PUBLISHED


def _table(rows: "Sequence[Row]") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("sampler")
    shown = {name: title for name, title in _COLUMNS.items() if _any(rows, name)}
    for title in ("steps", "temp", "calls", "s / text", "nats / token", *shown.values()):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        real = row.calls is None
        table.add_row(
            Text("real text" if real else row.sampler),
            "" if row.steps is None else str(row.steps),
            "" if row.temperature is None else f"{row.temperature:g}",
            "" if row.calls is None else f"{row.calls:.1f}",
            "" if row.seconds is None else f"{row.seconds:.3g}",
            nats(row),
            *(_cell(row, name) for name in shown),
            style="bold" if real else "",
        )
    return table


def _any(rows: "Sequence[Row]", name: str) -> bool:
    return any(getattr(row, name) is not None for row in rows)


def _cell(row: "Row", name: str) -> str:
    """A figure with its interval; where that is not known, as in older files, with its error."""
    from unmask.evaluation.suites.sample_rows import JUDGED

    value, ends = getattr(row, name), row.interval(name)
    if value is None:
        return ""
    if ends is not None:
        figure = with_interval(value, *ends)
    elif name == "perplexity":
        figure = with_error(value, value * row.nats_error)
    else:
        figure = with_error(value, getattr(row, f"{name}_error"))
    return _signed(row, figure) if name in JUDGED else figure


def with_interval(value: float, low: float, high: float) -> str:
    """A value to the digits that its interval leaves."""
    width = high - low
    digits = 4 if width <= 0 else min(max(0, 1 - math.floor(math.log10(width / 4))), 4)
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def nats(row: "Row") -> str:
    """The judge's nats per token, with their error."""
    return _signed(row, with_error(row.nats, row.nats_error))


def _signed(row: "Row", figure: str) -> str:
    return signed(row.certificate, figure)


def entropy(row: "Row") -> str:
    """The entropy of a text, with its error."""
    return with_error(row.entropy, row.entropy_error)
