"""Masked lines of held-out Python functions: exact matches and share of fillings that parse.

    unmask train code && unmask train code-autoregressive
    python benchmarks/code_filling.py runs/code --baseline runs/code-autoregressive --out code.jsonl
    python benchmarks/code_filling.py --table code.jsonl

The functions come from the files that a model of the recipe `code` held out. In each function 1, 3 or 10 consecutive
lines are masked. The number of their tokens is given. An MDLM reads the lines before and after the gap. The
autoregressive baseline reads the lines before it. `--table FILE` prints the lines of earlier runs.
"""

import argparse
import ast
import multiprocessing
import random
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from machine import Report, read_rows

from unmask import Model, load
from unmask.data.documents.fields import Fields
from unmask.data.sources.open_source import open_corpus
from unmask.evaluation.metrics.bootstrap import share

SHORTEST, LONGEST = 14, 45  # lines of a function
LEFT_TO_RIGHT = "left_to_right"
ROOM = 8  # tokens of a row that are left free, for special tokens


@dataclass(frozen=True)
class Gap:
    """A function with masked lines."""

    before: str
    inside: str
    after: str

    def parses(self, filling: str) -> bool:
        """True if the function with this filling is valid Python."""
        try:
            ast.parse(textwrap.dedent(self.before + filling + self.after))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True

    def same(self, filling: str) -> bool:
        """True if the filling has the lines of the original. Spaces at line ends do not count."""
        lines = [[line.rstrip() for line in text.splitlines()] for text in (filling, self.inside)]
        return lines[0] == lines[1]


def functions(model: Model) -> Iterator[str]:
    """The functions of the held-out files of a model, as text."""
    data = model.config.data
    assert isinstance(data.train, str)
    corpus = open_corpus(data.train, Fields(data.separator, data.text_field))
    for text in corpus.part(data.holdout, held=True):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        lines = text.splitlines(keepends=True)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found = lines[node.lineno - 1 : node.end_lineno]
                if SHORTEST <= len(found) <= LONGEST:
                    yield "".join(found)


def gaps(model: Model, masked: int, n: int) -> list[Gap]:
    """One gap of `masked` lines in each of `n` functions. A seed selects the functions."""
    draw = random.Random(masked)
    found = list(dict.fromkeys(functions(model)))
    draw.shuffle(found)
    chosen = []
    for text in found:
        lines = text.splitlines(keepends=True)
        first = draw.randrange(1, len(lines) - masked)
        stop = first + masked
        gap = Gap(*("".join(part) for part in (lines[:first], lines[first:stop], lines[stop:])))
        tokens = sum(
            len(model.tokenizer.encode(part)) for part in (gap.before, gap.inside, gap.after)
        )
        if gap.inside.strip() and tokens <= model.config.data.length - ROOM:
            chosen.append(gap)
        if len(chosen) == n:
            break
    if not chosen:
        raise SystemExit(
            f"the held-out files have no function of {SHORTEST} to {LONGEST} lines that fits a row of "
            f"{model.config.data.length} tokens: give a model of longer rows or of more files"
        )
    return chosen


def fill(model: Model, gap: Gap, **options: Any) -> str:
    """The text of a filling with as many tokens as the original.

    A model that reads only the lines before the gap may write more lines; they are cut off.
    """
    encode, mask = model.tokenizer.encode, model.tokenizer.vocabulary.mask_id
    before, inside = encode(gap.before), encode(gap.inside)
    if not model.method.capabilities.infill:
        length = len(before) + len(inside)
        [result] = model.generate(gap.before, length=length, stop=False, **options)
        lines = result.text[len(gap.before) :].splitlines(keepends=True)
        return "".join(lines[: len(gap.inside.splitlines())])
    [result] = model.fill([*before, *[mask] * len(inside), *encode(gap.after)], **options)
    assert result.text.startswith(gap.before) and result.text.endswith(gap.after)
    return result.text[len(gap.before) : len(result.text) - len(gap.after)]


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each number of lines, model and sampler."""
    model = load(args.model, args.device)
    jobs = [(args.model, name, masked) for masked in args.lines for name in args.samplers]
    jobs += [(args.baseline, LEFT_TO_RIGHT, n) for n in args.lines] if args.baseline else []
    for masked in args.lines:
        chosen = gaps(model, masked, args.functions)
        deleted = share([gap.parses("") for gap in chosen])
        row = {
            "row": f"deleted/{masked}",
            "way": "lines deleted",
            "lines": masked,
            "n": len(chosen),
        }
        yield {**row, **_cells("parse", deleted)}
    work = partial(filled, args)
    if args.processes == 1:
        yield from map(work, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.processes, context) as pool:
        # long jobs first
        for done in as_completed([pool.submit(work, job) for job in reversed(jobs)]):
            yield done.result()


def filled(args: argparse.Namespace, job: tuple[str, str, int]) -> dict[str, Any]:
    """The row of one model, sampler and number of lines."""
    path, sampler, masked = job
    chosen = gaps(load(args.model, args.device), masked, args.functions)
    own = load(path, args.device)
    name = "autoregressive" if path == args.baseline else f"MDLM, {sampler}"
    started = time.perf_counter()
    found = [fill(own, gap, sampler=sampler, temperature=0.0, seed=0) for gap in chosen]
    seconds = (time.perf_counter() - started) / max(1, len(found))
    pairs = list(zip(chosen, found, strict=True))
    exact = share([gap.same(text) for gap, text in pairs])
    parse = share([gap.parses(text) for gap, text in pairs])
    row = {"row": f"{name}/{masked}", "way": name, "lines": masked, "n": len(chosen)}
    first = [[gap.inside, text] for gap, text in pairs[:3]]
    return {**row, **_cells("exact", exact), **_cells("parse", parse), "s": seconds, "first": first}


def _cells(name: str, figure: Any) -> dict[str, float]:
    return {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each model and sampler: exact matches and parse rates in percent, with 95% intervals."""
    lines = sorted({row["lines"] for row in found})
    yield "| filled by | " + " | ".join(f"{n} lines: exact | parse" for n in lines) + " |"
    yield "|---" + "|---:" * (2 * len(lines)) + "|"
    for way in sorted({row["way"] for row in found}, reverse=True):
        by = {row["lines"]: row for row in found if row["way"] == way}
        cells = [_percent(by.get(n, {}), name) for n in lines for name in ("exact", "parse")]
        yield f"| {way} | {' | '.join(cells)} |"


def _percent(row: dict[str, Any], name: str) -> str:
    if name not in row:
        return "–"
    value, low, high = (100 * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:.0f} [{low:.0f}, {high:.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="a model of the recipe code")
    parser.add_argument("--baseline", help="an autoregressive model of the same rows")
    parser.add_argument("--samplers", nargs="+", default=["confidence", LEFT_TO_RIGHT])
    parser.add_argument("--lines", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1, help="processes that fill")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="a file to which rows are added")
    parser.add_argument(
        "--table", type=Path, nargs="+", metavar="FILE", help="print files of --out"
    )
    args = parser.parse_args()
    if args.table:
        print("\n".join(table(read_rows(*args.table))))
        return
    if not args.model:
        parser.error("give a model of the recipe code")
    report = Report(args.out)
    for row in rows(args):
        report.write(row)


if __name__ == "__main__":
    main()
