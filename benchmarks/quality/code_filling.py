"""Masked lines of held-out Python functions: exact matches and share of fillings that parse.

    python benchmarks/quality code_filling code --data python:jinja2,fsspec --functions 100 --lines 1 3 --out code.jsonl
    unmask train code && unmask train code-autoregressive
    python benchmarks/quality code_filling runs/code --baseline runs/code-autoregressive --out code.jsonl
    python benchmarks/quality code_filling --table code.jsonl

The functions come from the packages of `--data`, or from the files that a model of the recipe `code` held out. In each
function 1, 3 or 10 consecutive lines are masked. A row is a window of the file: as many tokens before the gap as
half a row has, and the tokens behind the gap that fit. An MDLM reads both sides and is given the number of masked
tokens. The autoregressive baseline reads the tokens before the gap and writes as many lines as are masked.
`--table FILE` prints the lines of earlier runs.
"""

import argparse
import ast
import random
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import machine_row
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask import Model, SamplingParams, load
from unmask.data.documents.fields import Fields
from unmask.data.sources.open_source import open_corpus
from unmask.evaluation.metrics.bootstrap import mean, share
from unmask.generation.generator import Generator
from unmask.generation.prompts import FillRequest
from unmask.likelihood.perplexity import rows_of

SHORTEST, LONGEST = 14, 45  # lines of a function
LEFT_TO_RIGHT = "left_to_right"
LONG_TOKEN = 20  # characters; the text of a window has fewer for each of its tokens


@dataclass(frozen=True)
class Function:
    """A function and the text of its file before and after it."""

    file_before: str
    text: str
    file_after: str


@dataclass(frozen=True)
class Gap:
    """A function with masked lines, and its window of the file as token ids."""

    before: str
    inside: str
    after: str
    left: list[int]
    masks: int  # tokens of the masked lines
    right: list[int]

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


def documents(model: Model, source: str | None) -> Iterator[str]:
    """The files of a source, or those that a model held out."""
    data = model.config.data
    fields = Fields(data.separator, data.text_field)
    if source:
        yield from open_corpus(source, fields)
        return
    assert isinstance(data.train, str)
    rows_of(model)  # warns if these files are not those that training held out
    yield from open_corpus(data.train, fields).part(data.holdout, held=True)


def functions(texts: Iterator[str]) -> Iterator[Function]:
    """The functions of files."""
    for text in texts:
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        lines = [f"{line}\n" for line in text.split("\n")]  # as ast counts them
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                cuts = slice(node.lineno - 1), slice(node.lineno - 1, node.end_lineno)
                parts = (lines[cut] for cut in (*cuts, slice(node.end_lineno, None)))
                function = Function(*map("".join, parts))
                if SHORTEST <= len(function.text.splitlines()) <= LONGEST:
                    yield function


def at_words(before: str, inside: str, after: str) -> tuple[str, str, str]:
    """The three parts, cut behind the last word of a line.

    A token of code joins a line break and the indentation behind it. A cut between them would give the
    model tokens that it has never seen together.
    """
    first, last = before.rstrip(), inside.rstrip()
    return first, before[len(first) :] + last, inside[len(last) :] + after


def gaps(model: Model, found: list[Function], masked: int, n: int) -> list[Gap]:
    """One gap of `masked` lines in each of `n` functions. A seed selects the functions."""
    draw, encode = random.Random(masked), model.tokenizer.encode
    found = draw.sample(found, len(found))
    chosen: list[Gap] = []
    body = model.config.data.length - 2  # tokens between BOS and EOS
    half = body // 2
    for function in found:
        lines = function.text.splitlines(keepends=True)
        if len(lines) < masked + 2:
            continue
        first = draw.randrange(1, len(lines) - masked)
        cuts = slice(first), slice(first, first + masked), slice(first + masked, None)
        before, inside, after = at_words(*("".join(lines[cut]) for cut in cuts))
        left = encode((function.file_before + before)[-LONG_TOKEN * half :])[-half:]
        masks = len(encode(inside))
        room = body - half - masks
        right = encode((after + function.file_after)[: LONG_TOKEN * body])[: max(0, room)]
        gap = Gap(before, inside, after, left, masks, right)
        fits = len(left) == half and 0 < room == len(right)
        if fits and inside.strip() and gap.parses(inside):
            chosen.append(gap)
        if len(chosen) == n:
            break
    if not chosen:
        raise SystemExit(
            f"the files have no function of {SHORTEST} to {LONGEST} lines with enough text around it for "
            f"a row of {body + 2} tokens: give a model of shorter rows or of more files"
        )
    return chosen


def fill(model: Model, chosen: list[Gap], sampler: str, batch: int) -> list[str]:
    """The text of each filling, the likeliest token first, one token a step.

    A model that reads only the tokens before the gap may write more lines than are masked; they are cut off.
    """
    v, infills = model.tokenizer.vocabulary, model.method.capabilities.infill
    assert v.bos_id is not None and v.eos_id is not None
    most = max(gap.masks for gap in chosen)
    start = 1 + len(chosen[0].left)
    canvases = []
    for gap in chosen:
        end = [*gap.right, v.eos_id] if infills else []
        masks = [v.mask_id] * (gap.masks if infills else most)
        canvases.append([v.bos_id, *gap.left, *masks, *end])
    request = FillRequest(canvases, 0, [start] * len(chosen), ends=False, openings=most)
    options = {"sampler": sampler, "temperature": 0.0, "seed": 0, "batch": batch}
    found = Generator(model, request, SamplingParams.of(options)).results()
    texts = []
    for gap, result in zip(chosen, found, strict=True):
        text = model.tokenizer.decode(result.ids[start : start + (gap.masks if infills else most)])
        lines = text.splitlines(keepends=True)[: len(gap.inside.splitlines())]
        texts.append(text if infills else "".join(lines))
    return texts


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each number of lines, model and sampler."""
    model = load(args.model, args.device)
    ways = [(f"MDLM, {name}", model, name) for name in args.samplers]
    if args.baseline:
        baseline = load(args.baseline, args.device)
        if baseline.tokenizer.fingerprint != model.tokenizer.fingerprint:
            raise SystemExit(f"{args.baseline} has another tokenizer than {args.model}")
        ways.append(("autoregressive", baseline, LEFT_TO_RIGHT))
    found = {function.text: function for function in functions(documents(model, args.data))}
    for masked in args.lines:
        chosen = gaps(model, list(found.values()), masked, args.functions)
        about = {"lines": masked, "n": len(chosen)}
        deleted = share([gap.parses("") for gap in chosen])
        name = "lines deleted"
        yield {"row": f"{name}/{masked}", "way": name, **about, **_cells("parse", deleted)}
        for name, own, sampler in ways:
            pairs = list(zip(chosen, fill(own, chosen, sampler, args.batch), strict=True))
            hits = {
                "exact": [gap.same(text) for gap, text in pairs],
                "parse": [gap.parses(text) for gap, text in pairs],
            }
            first = [[gap.inside, text] for gap, text in pairs[:3]]
            cells: dict[str, Any] = {}
            for kind, each in hits.items():
                cells |= {
                    **_cells(kind, share(each)),
                    f"{kind}_each": "".join("01"[hit] for hit in each),
                }
            yield {"row": f"{name}/{masked}", "way": name, **about, **cells, "first": first}


def validations(run: Path) -> Iterator[dict[str, Any]]:
    """The validations of a run folder."""
    log = run / "log.jsonl"
    for row in read_rows(log) if log.exists() else []:
        if found := row.get("validation"):
            own = {key: found[key] for key in ("nats", "error", "certificate")}
            yield {"row": f"{run.name}/step {row['step']}", "validation": own}


def _cells(name: str, figure: Any) -> dict[str, float]:
    return {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each model and sampler: exact matches and parse rates in percent, with 95% intervals."""
    lines = sorted({row["lines"] for row in found})
    by = {(row["way"], row["lines"]): row for row in found}
    head = [cell for n in lines for cell in (f"{n} line{'s' * (n > 1)}: exact", "parse")]
    names = [(n, name) for n in lines for name in ("exact", "parse")]
    yield from markdown(
        ["filled by", *head],
        (
            [way, *(_percent(by.get((way, n), {}), name) for n, name in names)]
            for way in sorted({row["way"] for row in found}, reverse=True)
        ),
    )


def differences(found: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each number of lines: the first sampler of MDLM less each other way, on the same functions."""
    for n in sorted({row["lines"] for row in found}):
        rows = [row for row in found if row["lines"] == n and "parse_each" in row]
        for other in rows[1:]:
            cells = []
            for kind in ("exact", "parse"):
                each = zip(rows[0][f"{kind}_each"], other[f"{kind}_each"], strict=True)
                figure = mean([int(a) - int(b) for a, b in each])
                value, low, high = (100 * x for x in (figure.value, figure.low, figure.high))
                cells.append(f"{kind} {value:+.0f} [{low:+.0f}, {high:+.0f}]")
            yield f"{rows[0]['way']} less {other['way']}, {n} line{'s' * (n > 1)}: {', '.join(cells)}"


def _percent(row: dict[str, Any], name: str) -> str:
    if name not in row:
        return "–"
    value, low, high = (100 * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:.0f} [{low:.0f}, {high:.0f}]"


def main() -> None:
    parser = script_parser(__doc__, "out", "table")
    add = parser.add_argument
    add("model", nargs="?", help="a model of the recipe code")
    add("--data", help="a source of Python files; the files that training held out")
    add("--baseline", help="an autoregressive model of the same rows")
    add("--samplers", nargs="+", default=["confidence", LEFT_TO_RIGHT])
    add("--lines", type=int, nargs="+", default=[1, 3, 10])
    add("--functions", type=int, default=400)
    add("--batch", type=int, default=100, help="functions of one batch")
    add("--device", default="auto")
    args = parser.parse_args()
    if args.table:
        found = [row for row in read_rows(*args.table) if "way" in row]
        print("\n".join([*table(found), "", *differences(found)]))
        return
    if not args.model:
        parser.error("give a model of the recipe code")
    report = Report(args.out)
    report.write(machine_row(tiny=False) | {"model": str(args.model), "data": args.data})
    for run in filter(None, (args.model, args.baseline)):
        for row in validations(Path(run)):
            report.write(row)
    for row in rows(args):
        report.write(row)
