"""unmask evaluate --suite infilling: gaps of held-out text, filled with and without sight of what follows."""

import argparse
import json
import math
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unmask.cli.commands.compare import NO_STEPS, load_judge
from unmask.cli.commands.evaluate_generation import WRITING
from unmask.cli.output.suite_table import published, with_interval
from unmask.cli.output.tables import print_whole, say
from unmask.cli.parser import Parser, given, refuse_others
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.evaluation.judges.causal_lm import CausalJudge
    from unmask.evaluation.metrics.bootstrap import Figure
    from unmask.evaluation.suites.infilling import FilledRow


def add(parser: Parser) -> None:
    options = parser.add_argument_group("infilling suite", argument_default=argparse.SUPPRESS)
    options.add_argument("--gap", type=int, metavar="N", help="tokens of a gap (8)")
    options.add_argument(
        "--baseline", metavar="MODEL", help="an autoregressive run, which sees the left side only"
    )


def execute(args: Namespace) -> None:
    refuse_others(args, "--suite infilling", *WRITING, "gap", "baseline")
    from unmask.evaluation.judges.causal_lm import CausalJudge
    from unmask.evaluation.suites.infilling import NO_GAPS, infill
    from unmask.model import load

    model = load(args.model, **given(args, "device", "precision", "compile"))
    model.refuse_pairs(NO_GAPS)  # before a judge is fetched
    baseline = load(args.baseline, **given(args, "device")) if hasattr(args, "baseline") else None
    judge = load_judge(args)
    if judge is not None and not isinstance(judge, CausalJudge):
        raise UnmaskError("infilling is judged by a causal model with its own tokens, not by a run")
    asked = given(args, "data", "gap", "samplers", "steps", "temperatures", "seed", "batch")
    if hasattr(args, "samples"):
        asked["n"] = args.samples

    def done(row: "FilledRow") -> None:
        if args.json:
            print(json.dumps({"judge": judge.name if judge else None, **row.to_dict()}), flush=True)

    rows = infill(model, baseline=baseline, judge=judge, say=say, done=done, **asked)
    if hasattr(args, "steps") and all(row.setting.steps is None for row in rows):
        say(NO_STEPS)
    if not args.json:
        _show(rows, judge)


def _show(rows: "Sequence[FilledRow]", judge: "CausalJudge | None") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("filled by", "seeing"):
        table.add_column(name, no_wrap=True)
    judged = ("judge's PPL, gap", "and behind it") if judge else ()
    for name in ("exact", "tokens right", *judged):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        filling = row.filling
        perplexities = [_perplexity(figure) for figure in (filling.gap, filling.after)]
        table.add_row(
            Text(str(row.setting)), row.sees, _cell(filling.exact), _cell(filling.accuracy),
            *(perplexities if judge else []), style="" if row.sees else "bold",
        )  # fmt: skip
    print_whole(table)
    lines = [f"{rows[0].n} gaps; [low, high]: 95% bootstrap over texts, BCa (exact: Wilson)"]
    if judge:
        lines.append(f"judge: {judge.name} after {judge.prefix}")
        if not published(judge.name):
            lines.append("not GPT-2-large: perplexity cannot be compared with published ones")
    Console(highlight=False).print("\n".join(lines), markup=False, soft_wrap=True)


def _cell(figure: "Figure") -> str:
    if math.isinf(figure.low):
        return f"{figure.value:.4f} ± ?"
    return with_interval(figure.value, figure.low, figure.high)


def _perplexity(figure: "Figure | None") -> str:
    from unmask.likelihood.bound import perplexity_of

    if figure is None or math.isnan(figure.value):
        return ""
    if math.isinf(figure.error):
        return f"{perplexity_of(figure.value):.4g} ± ?"
    return with_interval(*map(perplexity_of, (figure.value, figure.low, figure.high)))
