"""Reproduces a table of the paper: our figures beside the paper's, and their agreement."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import fmean, stdev, variance
from typing import Any

from unmask.extensions.report.agreement import Agreement, Compared, Error, order, ratios
from unmask.extensions.report.measurements import Point, scaled
from unmask.extensions.report.published_tables import CONTINUOUS, SCHEDULES_BOUND, Published
from unmask.extensions.report.scaled_runs import RUNS, Request
from unmask.files.jsonl import JsonLines
from unmask.likelihood.bound import perplexity_of
from unmask.runs.run_folder import Run, read_run

RESULTS = "results.jsonl"
UNKNOWN: Error = (math.inf, math.inf)


@dataclass(frozen=True)
class Line:
    """A row of a table: our figure with its standard error, and the paper's figure."""

    row: str
    ours: float
    error: float
    paper: float
    certificate: str
    runs: tuple[str, ...]  # folders of the measured runs
    facts: dict[str, float]  # other measurements
    freedom: float = math.inf  # degrees of freedom of the error

    @property
    def compared(self) -> Compared:
        return Compared(self.row, self.ours, self.error, self.paper, freedom=self.freedom)


@dataclass(frozen=True)
class Reproduction:
    """A reproduced table with its agreement and its runs."""

    table: str
    scale: str
    published: Published
    figure: str  # name and unit of the numbers
    lines: list[Line]
    agreement: list[Agreement]
    runs: list[Run]

    def to_dict(self) -> dict[str, Any]:
        """All fields for JSON; an unknown error is null."""
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
    """A line for JSON, with null in place of infinity."""
    figures = {**vars(line), "runs": list(line.runs), **line.facts}
    del figures["facts"]
    return {name: None if value == math.inf else value for name, value in figures.items()}


def reproduce(request: Request) -> Reproduction:
    """Trains and measures the runs of a table, and appends its lines to results.jsonl."""
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
    """Table 1: every pair of methods should have the paper's order."""
    lines = [_perplexity(request, row) for row in request.rows]
    found = _with_seeds(lines, seed_deviation(request))
    return "perplexity", lines, [order(combinations(found, 2))]


def _ablation(request: Request) -> Built:
    """Table 8: each removed component should move the bound in the paper's direction."""
    lines = [_perplexity(request, row) for row in request.rows]
    found = _with_seeds(lines, seed_deviation(request))
    return "perplexity", lines, [order(pairwise(found))]


def _steps(request: Request) -> Built:
    """Table 11: the curve should fall, with the paper's ratios to continuous time."""
    measuring = request.measuring("mdlm")
    points = measuring.by_steps([_T(row) for row in request.rows])
    lines = [
        Line(row, point.perplexity, point.perplexity_error,
             request.published.figures[row], point.certificate, (str(measuring.run),),
             {"nats": point.nats, "nats_error": point.error}, point.freedom)
        for row, point in zip(request.rows, points, strict=True)
    ]  # fmt: skip
    named = [
        replace(
            line.compared, name=f"T={line.row}", by_draw=[perplexity_of(n) for n in point.by_draw]
        )
        for line, point in zip(lines, points, strict=True)
    ]
    falling = order(pairwise(named))
    if named[-1].name != f"T={CONTINUOUS}":
        return "perplexity", lines, [falling]
    return "perplexity", lines, [falling, ratios(named[:-1], named[-1])]


def _schedules(request: Request) -> Built:
    """Variance by schedule: the bounds should be equal, the variances in the paper's order."""
    measuring = request.measuring("mdlm")
    spreads = measuring.schedules(request.rows)
    lines = [
        Line(row, spread.variance, spread.variance_error, request.published.figures[row],
             "estimate", (str(measuring.run),),
             {"nats": spread.nats, "nats_error": spread.error, "nats_freedom": spread.freedom},
             spread.variance_freedom)
        for row, spread in spreads.items()
    ]  # fmt: skip
    bounds = [
        Compared(f"bound under {row}", spread.nats, spread.error, SCHEDULES_BOUND,
                 freedom=spread.freedom)
        for row, spread in spreads.items()
    ]  # fmt: skip
    compared = [line.compared for line in lines]
    found = [order((bounds[0], other) for other in bounds[1:]), order(combinations(compared, 2))]
    if compared[0].name == "loglinear":
        found.append(ratios(compared[1:], compared[0]))
    return "variance, nats²", lines, found


def _perplexity(request: Request, row: str) -> Line:
    """A row's perplexity, from the mean nats of its seeds, with the error of the shared noise."""
    points = {name: _bound(request, name) for name in request.seeds_of(row)}
    nats = fmean(point.nats for point in points.values())
    # All seeds share rows and draws, so their errors correlate and averaging does not reduce them.
    error = fmean(point.error for point in points.values())
    freedom = min(point.freedom for point in points.values())
    facts = {f"nats_{name}": point.nats for name, point in points.items()}
    if len(points) > 1:
        facts["seed_deviation"] = stdev(point.nats for point in points.values())
    facts |= {"nats": nats, "nats_error": error}
    value = perplexity_of(nats)
    return Line(
        row,
        value,
        scaled(value, error),
        request.published.figures[row],
        next(iter(points.values())).certificate,
        tuple(str(request.folder / name) for name in points),
        facts,
        freedom,
    )


def _bound(request: Request, run: str) -> Point:
    point = request.measuring(run).bound()
    assert point is not None  # there is a budget, and the run is trained
    return point


def seed_deviation(request: Request) -> Error:
    """The standard deviation between trained seeds in nats, pooled over all rows with several."""
    squares, freedom = 0.0, 0.0
    for row in RUNS:
        names = request.trained_seeds(row)
        if len(names) > 1:
            nats = [_bound(request, name).nats for name in names]
            squares += (len(nats) - 1) * variance(nats)
            freedom += len(nats) - 1
    return (math.sqrt(squares / freedom), freedom) if freedom else UNKNOWN


def _with_seeds(lines: Sequence[Line], deviation: Error) -> list[Compared]:
    """Figures of the lines, with the deviation between seeds as a second error."""
    nats, freedom = deviation
    return [
        replace(line.compared, seeds=(line.ours * nats / math.sqrt(len(line.runs)), freedom))
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
