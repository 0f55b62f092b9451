"""unmask evaluate: how well a model predicts a text, by itself or by a suite of measurements."""

import argparse
import json
import math
from argparse import Namespace
from functools import reduce
from importlib import import_module
from operator import add as plus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.output.suite_table import say_unused
from unmask.cli.output.tables import facts
from unmask.cli.parser import (
    Commands,
    Parser,
    add_arithmetic,
    add_model,
    check_place,
    given,
    list_of,
    refuse_others,
)
from unmask.errors import UnmaskError, unknown
from unmask.likelihood.figure_text import _digits, with_error

if TYPE_CHECKING:
    from unmask.likelihood.bound import Bound
    from unmask.model import Model

# modules with add(parser), for options in a group of their own, and execute(args)
SUITES = {
    "zero-shot": "unmask.cli.commands.evaluate_zero_shot",
    "generation": "unmask.cli.commands.evaluate_generation",
    "infilling": "unmask.cli.commands.evaluate_infilling",
    "translation": "unmask.cli.commands.evaluate_translation",
}
_NAMES = ("model", "data")  # another machine may have others for the same weights and text
_MEASURING = ("data", "draws", "seed", "packing", "batch", "estimator", "orders")


def add(commands: Commands) -> None:
    summary = "measure perplexity on a text, with its Monte-Carlo error"
    parser = commands.add_parser("evaluate", help=summary, description=summary)
    add_model(parser, optional=True)
    options = parser.add_argument_group("measure", argument_default=argparse.SUPPRESS)
    options.add_argument(
        "--data",
        metavar="SOURCE",
        help="file, folder, hf:NAME, builtin:NAME, or - (the run's validation text)",
    )
    options.add_argument(
        "--draws", type=int, metavar="N", help="noise draws per row: the error falls as 1/sqrt(N)"
    )
    options.add_argument("--seed", type=int, metavar="N", help="seed of the draws")
    options.add_argument(
        "--packing",
        metavar="MODE",
        help="wrap, join, fit, pad or split (as the training text was packed)",
    )
    options.add_argument("--batch", type=int, metavar="N", help="rows at a time (32)")
    add_arithmetic(options)
    _add_likelihoods(parser)
    _add_parts(parser)
    suites = parser.add_argument_group("suites")
    suites.add_argument("--suite", metavar="NAME", help=f"one of: {', '.join(SUITES)}")
    for module in SUITES.values():
        import_module(module).add(parser)
    parser.set_defaults(execute=execute)


def _add_likelihoods(parser: Parser) -> None:
    group = parser.add_argument_group("which likelihood", argument_default=argparse.SUPPRESS)
    group.add_argument(
        "--estimator",
        metavar="NAME",
        help="of the bound: fixed_count, stratified, importance, uniform; or pseudo",
    )
    group.add_argument(
        "--steps",
        type=list_of(int),
        metavar="T",
        help="the bound of T steps, 0 being continuous time; suites: denoising steps, as 8,32",
    )
    group.add_argument(
        "--order",
        metavar="ORDER",
        help="chain rule: left_to_right, right_to_left, random, or places such as 2,0,1",
    )
    group.add_argument(
        "--orders", type=int, metavar="K", help="the bound over K random orders a draw"
    )


def _add_parts(parser: Parser) -> None:
    group = parser.add_argument_group("parts", argument_default=argparse.SUPPRESS)
    group.add_argument("--shard", metavar="I/N", help="measure the I-th of N parts, from 0/N on")
    group.add_argument("--save", type=Path, metavar="FILE", help="write what --json prints")
    group.add_argument(
        "--merge", type=Path, nargs="+", metavar="FILE", help="put saved parts together; no MODEL"
    )


def execute(args: Namespace) -> None:
    if args.suite is not None and args.suite not in SUITES:
        raise unknown("suite", args.suite, SUITES)
    if hasattr(args, "merge"):
        if args.model is not None or args.suite is not None:
            raise UnmaskError("--merge reads saved parts only: leave MODEL and --suite out")
        refuse_others(args, "--merge, which reads saved parts only", "merge", "save")
        for name in given(args, "device", "precision", "compile"):
            raise UnmaskError(f"--{name} does not go with --merge, which reads saved parts only")
        return _tell(args, *_merged(args.merge))
    if args.model is None:
        raise UnmaskError(
            "the following arguments are required: MODEL; see 'unmask evaluate --help'"
        )
    if args.suite is not None:
        import_module(SUITES[args.suite]).execute(args)
        return None
    return _measure(args)


def _measure(args: Namespace) -> None:
    from unmask.model import load

    refuse_others(
        args, "this measurement: name its --suite", *_MEASURING, "steps", "order", "shard", "save"
    )
    options = given(args, *_MEASURING)
    if hasattr(args, "steps"):
        if len(args.steps) > 1:
            raise UnmaskError("a bound has one number of steps: measure one after another")
        options["steps"] = args.steps[0]
    if hasattr(args, "order"):
        options["order"] = _order(args.order)
    if hasattr(args, "shard"):
        options["shard"] = _shard(args.shard)
    if hasattr(args, "save"):
        check_place(args.save)
    model = load(args.model, **given(args, "device", "precision", "compile"))
    bound = model.perplexity(**options)
    _tell(args, bound, _conditions(args, model))
    say_unused(args, bound)


def _conditions(args: Namespace, model: "Model") -> dict[str, Any]:
    """What a perplexity depends on beside the draws."""

    data = model.config.data
    return {
        "model": args.model,
        "data": getattr(
            args, "data", data.valid or f"{data.trained_on}, {data.holdout:.0%} held out"
        ),
        "packing": getattr(args, "packing", data.packing),
        "length": data.length,
        "tokenizer": f"{data.tokenizer.kind} {model.tokenizer.vocabulary.size}",
        "precision": model.precision,
        "weights": model.digest,
    }


def _order(text: str) -> str | list[int]:
    """A name, or places."""
    if not text or not text[0].isdigit():
        return text
    try:
        return [int(place) for place in text.split(",")]
    except ValueError:
        raise UnmaskError(f"--order {text!r} is no list of places such as 2,0,1") from None


def _shard(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal()):
        raise UnmaskError(f"--shard {text!r} is no part: write 0/2 for the first of two")
    return int(number), int(count)


def _merged(files: list[Path]) -> tuple["Bound", dict[str, Any]]:
    """The parts in files as one, and the conditions that they share."""
    from unmask.likelihood.bound import Bound
    from unmask.likelihood.sums import Sums

    parts: list[Sums] = []
    first: dict[str, Any] = {}
    for file in files:
        if not file.is_file():
            raise UnmaskError(f"no file {file}")
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
            sums, conditions = Sums.from_dict(saved["sums"]), saved["conditions"]
        except (ValueError, KeyError, TypeError, UnmaskError):
            raise UnmaskError(
                f"{file} holds no part: make it with unmask evaluate MODEL --shard I/N --save FILE"
            ) from None
        first = first or conditions
        for name in first | conditions:
            if name not in _NAMES and first.get(name) != conditions.get(name):
                raise UnmaskError(
                    f"these are no parts of one measurement: {name} is {first.get(name)} in {files[0]} "
                    f"and {conditions.get(name)} in {file}"
                )
        parts.append(sums)
    return Bound.from_sums(reduce(plus, parts)), first


def _tell(args: Namespace, bound: "Bound", conditions: dict[str, Any]) -> None:
    sums = bound.sums.to_dict() if bound.sums else None
    line = json.dumps({**conditions, **bound.to_dict(), "conditions": conditions, "sums": sums})
    if hasattr(args, "save"):
        args.save.write_text(line + "\n", encoding="utf-8")
    if args.json:
        print(line)
    else:
        _show(bound, conditions)


def _show(bound: "Bound", conditions: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape

    sign = "≤ " if bound.certificate == "upper" else ""
    table = facts(conditions["model"])
    pseudo = "pseudo-" if bound.certificate == "pseudo" else ""
    table.add_row(
        f"{pseudo}perplexity", sign + with_error(bound.perplexity, bound.perplexity_error)
    )
    table.add_row("nats per token", sign + with_error(bound.nats, bound.error))
    # of a part's share of the text, or with some of it unknown, it is no bound
    about = "≈ " if bound.text_estimated or bound.unknown else sign
    byte = with_error(bound.bits_per_byte, bound.bits_per_byte_error)
    character = with_error(bound.bits_per_character, bound.bits_per_character_error)
    table.add_row("bits per byte", about + byte)
    table.add_row("bits per character", about + character)
    table.add_row("certificate", bound.certificate)
    table.add_row("of", bound.of)
    if 0 < bound.error < math.inf:
        low, high = bound.interval
        digits = _digits(bound.error)
        table.add_row("99% interval", f"{low:.{digits}f} to {high:.{digits}f} nats per token")
    if bound.draws_to_halve is not None:
        table.add_row("to halve the error", f"{bound.draws_to_halve} draws")
    known = math.isfinite(bound.text_error)
    texts = f"± {bound.text_error:.2g} nats per token" if known else "unknown: all of it is one row"
    table.add_row("error over texts", texts)
    table.add_row("tokens", f"{bound.tokens:,}")
    if bound.left_out:
        table.add_row("left out", f"{bound.left_out:,} pairs that fit into no row")
    if bound.unknown:
        table.add_row("unknown", f"{bound.unknown:,} tokens, of what the tokenizer has none for")
    if bound.unread:
        table.add_row("not read", escape(bound.unread))
    table.add_row("draws", str(bound.draws))
    if bound.sums and bound.sums.rows < bound.sums.conditions.rows:
        rows = ", ".join(f"{start} to {stop - 1}" for start, stop in bound.sums.parts)
        table.add_row("rows", f"{rows} of {bound.sums.conditions.rows}")
    if len(bound.terms) > 1:
        table.add_row(
            "terms", ", ".join(f"{name} {value:.4f}" for name, value in bound.terms.items())
        )
    for name, value in list(conditions.items())[1:]:
        table.add_row(name, escape(str(value)))
    Console().print(table)
