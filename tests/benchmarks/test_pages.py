"""Figures on the pages are those of the stored rows."""

import re
import sys
from itertools import pairwise

import pytest
from benchmark_rows import BENCHMARKS

from benchmarks import room
from benchmarks.learning.time_to_bound import pairs
from benchmarks.rows import read_rows
from benchmarks.speed.beside_authors import memory, ratios
from unmask import recipes
from unmask.cli import main

ROOT = BENCHMARKS.parent
NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?")


def span(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def first_screen() -> list[str]:
    """Sentences of the README, with figures computed from the rows."""
    speed = read_rows(BENCHMARKS / "speed" / "authors.jsonl")
    training = [r for row in speed if row["unit"] == "tok/s" for r in ratios(row)]
    sampling = [min(ratios(row)) for row in speed if row["unit"] == "s/seq"]
    sampling += [max(ratios(row)) for row in speed if row["unit"] == "s/seq"]
    (long,) = {f"{memory(row):.0%}" for row in speed if row["row"] == "train-1024"}
    (short,) = {f"{memory(row):.0%}" for row in speed if row["row"] == "train-128"}
    bert = {row["row"]: row["times"] for row in speed if "times" in row}
    runs = pairs(read_rows(BENCHMARKS / "learning" / "time_to_bound.jsonl")).values()
    faster = [
        (theirs["seconds"] + theirs["start_seconds"]) / (row["seconds"] + row["start_seconds"])
        for theirs, ours in runs
        for row in ours
    ]
    steps = [max(map(int, row["bounds"])) for _, ours in runs for row in ours]
    passes = read_rows(BENCHMARKS / "learning" / "passes.jsonl")
    after = {
        method: {
            f"{min(run, key=lambda row: row['nats'])['passes']:.0f}"
            for seed in range(3)
            if (run := [row for row in passes if row["run"] == f"{method}-0.1-3200-{seed}"])
        }
        for method in ("mdlm", "autoregressive")
    }
    (few,) = after["autoregressive"]
    return [
        f"training is {span(training, 1)} times as fast as the authors' code",
        f"with {long} of its memory at 1,024 tokens and {short} at 128",
        f"Exact sampling is {span(sampling, 1)} times as fast",
        f"training is {bert['bert-128']} times as fast at 128 tokens and {bert['bert-1024']} times at 1,024",
        f"[{span(steps, 0)} steps](",
        f"comes in {span(faster, 0)} times less time with the first steps",
        f"best after {' to '.join(sorted(after['mdlm']))} passes, and an autoregressive model of the same size after {few}",
    ]


@pytest.mark.parametrize("sentence", first_screen())
def test_the_first_screen_has_the_figures_of_the_rows(sentence):
    assert sentence in " ".join((ROOT / "README.md").read_text("utf-8").split())


TABLES = [  # a room, scripts with their rows, a page, words before its tables, words behind them
    ("learning", "passes --table passes.jsonl", "benchmarks/learning/passes.md", "# More", "\n## "),
    ("learning", "time_to_bound --table time_to_bound.jsonl", "benchmarks/learning/README.md", "## Time to bound", "\n## "),
    ("learning", "sizes --out sizes --table", "benchmarks/learning/README.md", "## Sizes, schedules and samplers", "\n## "),
    ("learning", "baselines --out baselines --table", "benchmarks/learning/baselines.md", "## Table 1 in small", "\n## "),
    ("learning", "own_text --table own_text.jsonl", "docs/how-to/fine-tune.md", "## Gains by size of the text", "\n## "),
    ("quality", "failure_modes --table failure_modes.jsonl", "docs/explanation/failure-modes.md", "## Repetition", "\n## "),
    ("quality", "failure_modes --table failure_modes.jsonl", "docs/explanation/failure-modes.md", "## Dependence", "\n## "),
    (
        "quality", "code_filling --table code_filling.jsonl; code_filling --table code_filling_unseen.jsonl",
        "benchmarks/quality/code.md", "# Lines", "\n## Gaps",
    ),
    ("dna", "enhancers --table enhancers.jsonl", "benchmarks/dna/README.md", "## Enhancers by cell type", "\n## "),
    ("orders", "learned_order --table learned_order.jsonl", "docs/extensions/orders.md", "## Policy of `stories`", "\n!["),
    ("speed", "beside_authors --table authors.jsonl", "benchmarks/speed/README.md", "### Beside the authors", "\n## "),
    ("pairs", "encoder_decoder --table encoder_decoder_multi30k.jsonl", "docs/extensions/pairs.md", "## Joint row", "\nThe gain of"),
    ("pairs", "encoder_decoder --table encoder_decoder_e2e.jsonl", "docs/extensions/pairs.md", "### Facts", "\nBLEU of"),
    ("learning", "per_step --table learning.jsonl", "benchmarks/learning/README.md", "**Recipes.**", "\n**Networks"),
    ("speed", "blocks --table blocks_h200.jsonl", "benchmarks/speed/README.md", "## Steps in blocks", "\n## "),
    ("learning", "smol table smol.jsonl", "benchmarks/learning/README.md", "## Adaptation", "\n## "),
    ("speed", "length_speed --table length_speed_cpu.jsonl", "benchmarks/speed/README.md", "Two CPU cores", "\n| aarch64"),
    ("speed", "length_speed --table length_speed_aarch64.jsonl", "benchmarks/speed/README.md", "| aarch64", "\n!["),
    ("dna", "speed --out speed.jsonl --table", "benchmarks/dna/README.md", "## Speed", "\n## "),
    ("speed", "length_speed --table length_speed_h200.jsonl", "benchmarks/speed/README.md", "## Seconds a text by", "\n!["),
]  # fmt: skip


def rows_of(text: str) -> list[str]:
    """The lines of tables without their heads."""
    lines = [*re.sub(r"[*`]", "", text).splitlines(), ""]
    return [
        line for line, after in pairwise(lines)
        if line.startswith("|") and not line.startswith("|-") and not after.startswith("|-")
    ]  # fmt: skip


def figures(line: str) -> list[str]:
    """The figures of a row. Names, and times that are only known to be longer than a limit, are left out."""
    cells = [re.sub(" (to|of) ", " ", cell) for cell in line.replace("−", "-").split("|")[2:]]
    return [n for cell in cells if not re.search("[a-zA-Z>]", cell) for n in NUMBER.findall(cell)]


def agrees(shown: str, computed: str) -> bool:
    """Equal, up to the digits that the page shows."""
    digits = len(shown.partition(".")[2])
    one, other = (float(text.replace(",", "")) for text in (shown, computed))
    return abs(one - other) <= 0.5001 * 10**-digits


def unexplained(page: list[str], printed: list[str]) -> list[str]:
    """Rows of a page with a figure that the printed row which fits best does not have."""
    known = [figures(line) for line in printed]
    return [
        line for line in page
        if not any(all(any(agrees(a, b) for b in row) for a in figures(line)) for row in known)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "scripts", "page", "after", "until"), TABLES, ids=lambda part: part[:24]
)
def test_tables_have_the_figures_of_the_rows(
    name, scripts, page, after, until, monkeypatch, capsys
):
    if not ((BENCHMARKS / name).is_dir() and (ROOT / page).is_file()):
        pytest.skip("this copy lacks the extension")
    monkeypatch.setattr(sys, "argv", [name])
    assert room.main(str(BENCHMARKS / name / "__main__.py"), scripts.split("; ")) == 0
    printed = rows_of(capsys.readouterr().out)
    section = f"\n{(ROOT / page).read_text('utf-8')}".partition(f"\n{after}")[2]
    shown = rows_of(section.partition(until)[0])
    assert shown and printed
    assert unexplained(shown, printed) == []


def planned() -> list[tuple[str, str, str]]:
    """Recipes on the page on hardware, with planned memory and time."""
    rows = rows_of((ROOT / "docs" / "how-to" / "hardware.md").read_text("utf-8"))
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return [(row[1].partition(":")[0], row[4], row[5]) for row in cells]


@pytest.mark.parametrize(("recipe", "memory", "time"), planned())
def test_plans_on_the_page_are_those_of_the_command(recipe, memory, time, capsys):
    if recipe not in recipes.names():
        pytest.skip("this copy lacks the extension")
    assert main(["plan", recipe]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^ plain .* {re.escape(memory)} .*best", printed, re.M)
    assert f"the run takes {time} to" in printed or time == "seconds"


def test_another_figure_is_found():
    printed = ["| mdlm | 0.1 | 0.9384 ± 0.028 |"]
    assert unexplained(["| mdlm | 0.1 | 0.938 ± 0.028 |"], printed) == []
    assert unexplained(["| mdlm | 0.1 | 0.939 ± 0.028 |"], printed) != []
