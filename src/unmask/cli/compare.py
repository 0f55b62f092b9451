"""unmask compare: samplers side by side, as a table and a picture."""

import argparse
import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unmask.cli.evaluate import with_error
from unmask.cli.parser import Commands, add_model, given
from unmask.errors import UnmaskError, unknown

if TYPE_CHECKING:
    from rich.table import Table

    from unmask.api import Row

T = TypeVar("T", int, float)

_OPTIONS = ("samplers", "n", "length", "top_k", "top_p", "seed", "batch")
_MEASURING = ("judge", "steps", "temperature", "n", "length", "top_k", "top_p", "seed", "batch")
_ROWS = ".jsonl"


def add(commands: Commands) -> None:
    summary = "compare samplers: quality against network calls and seconds"
    parser = commands.add_parser("compare", help=summary, description=summary)
    add_model(parser)
    add = parser.add_argument_group("comparison", argument_default=argparse.SUPPRESS).add_argument
    add(
        "--samplers",
        nargs="+",
        metavar="NAME",
        help="see 'unmask samplers'; fields as NAME:field=value,field=value",
    )
    add("--steps", type=_list_of(int), metavar="N,N", help="denoising steps (8,16,32,64,128)")
    add("--temperature", type=_list_of(float), metavar="X,X", help="below 1 is safer (1)")
    add("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens only")
    add("--top-p", type=float, metavar="P", help="draw from the likeliest tokens that make up P")
    add("--n", type=int, metavar="N", help="texts of each setting (64)")
    add("--length", type=int, metavar="N", help="tokens of a text; the model's length by default")
    add("--seed", type=int, metavar="N", help="the same seed writes the same texts")
    add("--batch", type=int, metavar="N", help="texts written at a time (64)")
    add("--judge", metavar="MODEL", help="the model that measures the texts; by default itself")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="draw a .png, .svg or .pdf, and keep the rows beside it, from where it goes on",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    out = getattr(args, "out", None)
    if out is not None:
        _check_out(out)
    if Path(args.model).suffix == _ROWS:  # measured before, here or on another machine
        from unmask.api.rows import stored

        if measuring := [name for name in _MEASURING if hasattr(args, name)]:
            raise UnmaskError(f"--{measuring[0]} is for measuring, and {args.model} is measured")
        rows = _chosen(stored(_existing(Path(args.model))), getattr(args, "samplers", None))
        if args.json:
            print(*(json.dumps(row.to_dict()) for row in rows), sep="\n")
    else:
        rows = _measure(args, out.with_suffix(_ROWS) if out else None)
    if not args.json:
        _show(rows)
    if out is not None and out.suffix != _ROWS:
        from unmask.cli.frontier import draw

        draw(rows, out)


def _chosen(rows: "list[Row]", samplers: list[str] | None) -> "list[Row]":
    """Real text, and the samplers that were named; without names all of them."""
    if samplers is None:
        return rows
    known = {row.sampler for row in rows if row.calls is not None}
    for name in samplers:
        if name not in known:
            raise unknown("sampler of these rows", name, known)
    return [row for row in rows if row.calls is None or row.sampler in samplers]


def _measure(args: Namespace, file: Path | None) -> "list[Row]":
    from unmask import api
    from unmask.api.comparing import STEPS, settings

    model = api.load(args.model, **given(args, "device"))
    judge = api.load(args.judge, **given(args, "device")) if hasattr(args, "judge") else None
    steps = getattr(args, "steps", STEPS)
    temperatures = getattr(args, "temperature", [1.0])
    points = settings(model, getattr(args, "samplers", None), steps, temperatures)
    names = ["real text", *map(str, points)]
    with _progress(names, args.json) as (say, done):
        try:
            return api.compare(
                model,
                steps=steps,
                temperatures=temperatures,
                judge=judge,
                file=file,
                say=say,
                done=done,
                **given(args, *_OPTIONS),
            )
        except KeyboardInterrupt:
            if file is None:
                raise
            raise KeyboardInterrupt(f"{file} keeps the rows; the same command goes on") from None


@contextmanager
def _progress(
    names: Sequence[str], as_json: bool
) -> "Iterator[tuple[Callable[[str], None], Callable[[Row], None]]]":
    """A bar on standard error in a terminal, a line for each row elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns: Any = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    following = dict(zip(names, [*names[1:], ""], strict=True))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(names[0], total=len(names))

        def say(line: str) -> None:
            console.print(line, markup=False)

        def done(row: "Row") -> None:
            name = str(row.setting)
            bar.update(task, completed=names.index(name) + 1, description=following[name])
            if as_json:
                print(json.dumps(row.to_dict()), flush=True)
            elif bar.disable:
                say(f"{name}: {_nats(row)} nats per token, entropy {_entropy(row)}")

        yield say, done


def _show(rows: "Sequence[Row]") -> None:
    from rich.console import Console

    table = _table(rows)
    console = Console(highlight=False)
    # numbers are never cut; in a narrower terminal the lines go on below
    natural = console.measure(table, options=console.options.update(max_width=1000)).maximum
    Console(highlight=False, width=max(console.width, natural)).print(table)


def _table(rows: "Sequence[Row]") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("sampler")
    for name in (
        "steps", "temp", "calls", "s / text", "nats / token", "perplexity", "entropy",
        "distinct-2", "repeated-4",
    ):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        real = row.calls is None
        table.add_row(
            Text("real text" if real else row.sampler),
            "" if row.steps is None else str(row.steps),
            "" if row.temperature is None else f"{row.temperature:g}",
            "" if row.calls is None else f"{row.calls:.1f}",
            "" if row.seconds is None else f"{row.seconds:.3g}",
            _nats(row),
            f"{row.perplexity:.4g}",
            _entropy(row),
            with_error(row.distinct_2, row.distinct_2_error),
            with_error(row.repetition, row.repetition_error),
            style="bold" if real else "",
        )
    return table


def _nats(row: "Row") -> str:
    sign = "≤ " if row.certificate == "upper" else ""
    return sign + with_error(row.nats, row.nats_error)


def _entropy(row: "Row") -> str:
    return with_error(row.entropy, row.entropy_error)


def _list_of(kind: type[T]) -> Callable[[str], list[T]]:
    """Values with commas between."""

    def parse(text: str) -> list[T]:
        try:
            return [kind(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no list of numbers such as 8,16,32"
            ) from None

    return parse


def _check_out(out: Path) -> None:
    """Before hours of measuring: a picture that can be drawn."""
    kinds = (".png", ".svg", ".pdf", _ROWS)
    if out.suffix not in kinds:
        raise UnmaskError(f"--out {out}: the name must end in {', '.join(kinds[:-1])} or {_ROWS}")
    if out.suffix != _ROWS:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            raise UnmaskError(
                f"--out {out} needs matplotlib: pip install 'unmask[log]', or give a name in {_ROWS} "
                "and draw it on another machine"
            ) from None


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise UnmaskError(f"no file {file}: give a model, or rows that 'unmask compare' kept")
    return file
