"""unmask compare: samplers side by side, as a table and a picture."""

import argparse
import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.output.suite_table import entropy, nats, show
from unmask.cli.parser import Commands, add_model, given, list_of
from unmask.errors import UnmaskError, unknown

if TYPE_CHECKING:
    from unmask.evaluation.judges.causal_lm import CausalJudge
    from unmask.evaluation.suites.sample_rows import Row
    from unmask.model import Model

_OPTIONS = ("n", "length", "top_k", "top_p", "seed", "batch", "data")
_MEASURING = ("judge", "judge_prefix", "steps", "temperature", *_OPTIONS)
_ROWS = ".jsonl"
NO_STEPS = "--steps changes nothing: no sampler here takes it"
_SHARED = {
    "judge_digest": "by another judge",
    "n": "on other numbers of texts",
    "length": "at another length",
}


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
    add("--steps", type=list_of(int), metavar="N,N", help="denoising steps (8,16,32,64,128)")
    add("--temperature", type=list_of(float), metavar="X,X", help="below 1 is safer (1)")
    add("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens only")
    add("--top-p", type=float, metavar="P", help="draw from the likeliest tokens that make up P")
    add("--n", type=int, metavar="N", help="texts of each setting (64)")
    add("--length", type=int, metavar="N", help="tokens of a text; the model's length by default")
    add("--data", metavar="SOURCE", help="real text; the model's own validation text by default")
    add("--seed", type=int, metavar="N", help="the same seed writes the same texts")
    add("--batch", type=int, metavar="N", help="texts written at a time (64)")
    add("--judge", metavar="JUDGE", help="what measures the texts; by default the model itself")
    add_prefix(add)
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="draw a .png, .svg or .pdf, and keep the rows beside it, from where it goes on",
    )
    add(
        "--beside",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="rows of other models by the same judge (.jsonl), to show and draw with these",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace, usual_steps: Sequence[int] | None = None) -> None:
    """Measures and shows; without samplers given all of them, or the model's usual one at its usual steps."""
    out = getattr(args, "out", None)
    if out is not None:
        _check_out(out)
    others = _beside(getattr(args, "beside", []))
    if Path(args.model).suffix == _ROWS:  # measured before, here or on another machine
        from unmask.evaluation.suites.sample_rows import stored

        if measuring := [name for name in _MEASURING if hasattr(args, name)]:
            option = measuring[0].replace("_", "-")
            raise UnmaskError(f"--{option} is for measuring, and {args.model} is measured")
        rows = _chosen(stored(_existing(Path(args.model))), getattr(args, "samplers", None))
        for row in rows:
            _check_beside(row, others)
        if args.json:
            _print(rows)
    else:
        rows = _measure(args, out.with_suffix(_ROWS) if out else None, usual_steps, others)
    rows += (named := [row for group in others.values() for row in group])
    if args.json:
        _print(named)
    else:
        show(rows)
    if out is not None and out.suffix != _ROWS:
        from unmask.report.frontier_plot import draw

        draw(rows, out)


def _print(rows: "list[Row]") -> None:
    for row in rows:
        print(json.dumps(row.to_dict()))


def _chosen(rows: "list[Row]", samplers: list[str] | None) -> "list[Row]":
    """Real text, and the samplers that were named; without names all of them."""
    if samplers is None:
        return rows
    known = {row.sampler for row in rows if row.calls is not None}
    for name in samplers:
        if name not in known:
            raise unknown("sampler of these rows", name, known)
    return [row for row in rows if row.calls is None or row.sampler in samplers]


def _beside(files: list[Path]) -> "dict[Path, list[Row]]":
    """The rows of other models by their files, each sampler named with its own."""
    from unmask.evaluation.suites.sample_rows import stored

    return {
        file: [
            replace(row, sampler=f"{row.sampler}, {file.stem}")
            for row in stored(_existing(file))
            if row.calls is not None
        ]
        for file in files
    }


def _check_beside(own: "Row", others: "dict[Path, list[Row]]") -> None:
    """An error where rows would stand beside one that was measured in another way."""
    for file, rows in others.items():
        for row in rows[:1]:  # those of a file are alike
            for name, how in _SHARED.items():
                real = own.calls is None and name == "n"  # there may be less of it
                if not real and getattr(row, name) != getattr(own, name):
                    raise UnmaskError(
                        f"{file} was measured {how}: {_told(row, name)}, not {_told(own, name)}"
                    )


def _told(row: "Row", name: str) -> str:
    """What a row was measured with, as a reader knows it."""
    described = row.judge if name == "judge_digest" else None
    return str(described or getattr(row, name))


def _measure(
    args: Namespace,
    file: Path | None,
    usual_steps: Sequence[int] | None,
    others: "dict[Path, list[Row]]",
) -> "list[Row]":
    from unmask.evaluation.suites.sample_quality import STEPS, compare, settings, usual_samplers
    from unmask.evaluation.suites.sample_rows import NO_TEXTS
    from unmask.model import load

    model = load(args.model, **given(args, "device", "precision", "compile"))
    model.refuse_pairs(NO_TEXTS)  # before a judge is fetched
    judge = load_judge(args)
    steps = getattr(args, "steps", usual_steps or STEPS)
    temperatures = getattr(args, "temperature", [1.0])
    samplers = getattr(args, "samplers", usual_samplers(model) if usual_steps else None)
    points = settings(model, samplers, steps, temperatures)
    names = ["real text", *map(str, points)]
    with _progress(names, args.json) as (say, done):
        if hasattr(args, "steps") and all(point.steps is None for point in points):
            say(NO_STEPS)

        def tell(row: "Row") -> None:
            _check_beside(row, others)  # not after hours
            done(row)

        try:
            return compare(
                model,
                samplers,
                steps,
                temperatures=temperatures,
                judge=judge,
                file=file,
                say=say,
                done=tell,
                **given(args, *_OPTIONS),
            )
        except KeyboardInterrupt:
            if file is None:
                raise
            raise KeyboardInterrupt(f"{file} keeps the rows; the same command goes on") from None


def add_prefix(add: Callable[..., Any]) -> None:
    """How a judge with its own tokens is told what texts begin with."""
    add(
        "--judge-prefix",
        metavar="TOKEN",
        help="what the judge reads before a text; <|endoftext|> or its BOS unless given",
    )


def load_judge(args: Namespace) -> "Model | CausalJudge | None":
    """The judge that was asked for."""
    from unmask.evaluation.judges import load_judge as judges

    prefix = {"prefix": args.judge_prefix} if hasattr(args, "judge_prefix") else {}
    if hasattr(args, "judge"):
        return judges.load_judge(args.judge, **given(args, "device"), **prefix)
    if prefix:
        raise UnmaskError("--judge-prefix is for a --judge with a tokenizer of its own")
    return None


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
                say(f"{name}: {nats(row)} nats per token, entropy {entropy(row)}")

        yield say, done


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
