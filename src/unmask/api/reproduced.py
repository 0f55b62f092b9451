"""A table of the paper reproduced: ours beside the paper's, and what agrees."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

from unmask.api.agreement import Agreement, Compared, order, ratios
from unmask.api.paper import CONTINUOUS, SCHEDULES_BOUND, Published
from unmask.api.reporting import Run, read_run
from unmask.api.reproducing import Request
from unmask.training.logging import JsonLines

RESULTS = "results.jsonl"
SEEDS = {"mdlm": ("mdlm", "mdlm-seed-1")}  # rows of Table 1 that are trained more than once


@dataclass(frozen=True)
class Line:
    """A row of a table: ours, with its standard error, beside the paper's."""

    row: str
    ours: float
    error: float
    paper: float
    certificate: str
    runs: tuple[str, ...]  # the folders that it was measured in
    facts: dict[str, float]  # what else was measured

    @property
    def compared(self) -> Compared:
        return Compared(self.row, self.ours, self.error, self.paper)


@dataclass(frozen=True)
class Reproduction:
    """A table: its lines, what agrees and what does not, and the runs that made it."""

    table: str
    scale: str
    published: Published
    figure: str  # what the numbers are
    lines: list[Line]
    agreement: list[Agreement]
    runs: list[Run]

    def to_dict(self) -> dict[str, Any]:
        """All of it, for a program; an unknown error is null."""
        return {
            "table": self.table,
            "scale": self.scale,
            "figure": self.figure,
            "title": self.published.title,
            "setting": self.published.setting,
            "lines": [record(line) for line in self.lines],
            "agreement": [vars(found) for found in self.agreement],
        }


def record(line: Line) -> dict[str, Any]:
    """A line as JSON holds it."""
    figures = {**vars(line), "runs": list(line.runs), **line.facts}
    del figures["facts"]
    return {name: None if value == math.inf else value for name, value in figures.items()}


def reproduce(request: Request) -> Reproduction:
    """Ours beside the paper's; each line is kept in a file of the runs' folder."""
    figure, lines, agreement = _BUILD[request.table](request)
    folders = dict.fromkeys(name for line in lines for name in line.runs)
    runs = [read_run(name) for name in folders]
    found = Reproduction(
        request.table, request.scale, request.published, figure, lines, agreement, runs
    )
    results = JsonLines(request.folder / RESULTS)
    known = results.read()
    for line in lines:
        result = {"table": request.table, "scale": request.scale, "figure": figure, **record(line)}
        if result not in known:
            results.write(result)
    return found


Built = tuple[str, list[Line], list[Agreement]]


def _methods(request: Request) -> Built:
    """Table 1: every pair of methods must come in the paper's order."""
    lines = [_perplexity(request, row, SEEDS.get(row, (row,))) for row in request.rows]
    return "perplexity", lines, [order(combinations(_with_seeds(lines), 2))]


def _ablation(request: Request) -> Built:
    """Table 8: each part that is taken away must change the bound as in the paper."""
    lines = [_perplexity(request, row, (row,)) for row in request.rows]
    return "perplexity", lines, [order(pairwise([line.compared for line in lines]))]


def _steps(request: Request) -> Built:
    """Table 11: the curve must fall, and as the paper's does in proportion to its end."""
    measuring = request.measuring("mdlm")
    points = measuring.by_steps([_T(row) for row in request.rows])
    lines = [
        Line(row, math.exp(point.nats), math.exp(point.nats) * point.error,
             request.published.figures[row], point.certificate, (str(measuring.run),),
             {"nats": point.nats, "nats_error": point.error})
        for row, point in zip(request.rows, points, strict=True)
    ]  # fmt: skip
    named = [
        replace(line.compared, name=f"T={line.row}", by_draw=[math.exp(n) for n in point.by_draw])
        for line, point in zip(lines, points, strict=True)
    ]
    falling = order(pairwise(named))
    if named[-1].name != f"T={CONTINUOUS}":
        return "perplexity", lines, [falling]
    return "perplexity", lines, [falling, ratios(named[:-1], named[-1])]


def _schedules(request: Request) -> Built:
    """Variance by schedule: one bound for all, and the paper's order of variances."""
    measuring = request.measuring("mdlm")
    spreads = measuring.schedules(request.rows)
    lines = [
        Line(row, spread.variance, spread.variance_error, request.published.figures[row],
             "estimate", (str(measuring.run),), {"nats": spread.nats, "nats_error": spread.error})
        for row, spread in spreads.items()
    ]  # fmt: skip
    bounds = [
        Compared(f"bound under {row}", spread.nats, spread.error, SCHEDULES_BOUND)
        for row, spread in spreads.items()
    ]
    compared = [line.compared for line in lines]
    found = [order((bounds[0], other) for other in bounds[1:]), order(combinations(compared, 2))]
    if compared[0].name == "loglinear":
        found.append(ratios(compared[1:], compared[0]))
    return "variance, nats²", lines, found


def _perplexity(request: Request, row: str, runs: Sequence[str]) -> Line:
    """A row's perplexity: the mean of its seeds in nats, with the error of their noise."""
    points, facts = [], {}
    for name in runs:
        measuring = request.measuring(name)
        point = measuring.bound()
        assert point is not None  # there is a budget, and the run is trained
        points.append(point)
        facts[f"nats_{name}"] = point.nats
    nats = math.fsum(point.nats for point in points) / len(points)
    error = math.hypot(*(point.error for point in points)) / len(points)
    if len(points) > 1:
        facts["seed_deviation"] = math.sqrt(
            math.fsum((point.nats - nats) ** 2 for point in points) / (len(points) - 1)
        )
    value = math.exp(nats)
    folders = tuple(str(request.folder / name) for name in runs)
    paper = request.published.figures[row]
    facts |= {"nats": nats, "nats_error": error}
    return Line(row, value, value * error, paper, points[0].certificate, folders, facts)


def _with_seeds(lines: Sequence[Line]) -> list[Compared]:
    """Figures whose errors know that another seed would have trained another model."""
    known = [line.facts["seed_deviation"] for line in lines if "seed_deviation" in line.facts]
    deviation = max(known, default=0.0)
    return [
        replace(
            line.compared,
            error=math.hypot(line.error, line.ours * deviation / math.sqrt(len(line.runs))),
        )
        for line in lines
    ]


def _T(row: str) -> int:
    return 0 if row == CONTINUOUS else int(row)


_BUILD: dict[str, Callable[[Request], Built]] = {
    "table1": _methods,
    "table8": _ablation,
    "table11": _steps,
    "schedules": _schedules,
}
