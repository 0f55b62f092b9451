"""Content of a report on one run: its log, its samples and its measurements."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from unmask.errors import UnmaskError
from unmask.evaluation.suites.sample_rows import Row, stored
from unmask.extensions.report.measurements import FILE, Budget, Measuring, Point
from unmask.extensions.report.schedule_variance import Spread
from unmask.runs.run_folder import Parameters, Run
from unmask.training.logs.run_log import LOGS

Figure = TypeVar("Figure")

_OTHER = {*LOGS, FILE}  # files that hold no rows of 'evaluate generation'


def frontiers(folder: Path) -> dict[str, list[Row]]:
    """The rows of 'evaluate generation' in a run folder, by file."""
    found = {}
    for file in sorted(folder.glob("*.jsonl")):
        if file.name not in _OTHER:
            try:
                found[file.name] = stored(file)
            except UnmaskError:  # JSON lines of another kind
                continue
    return found


@dataclass(frozen=True)
class RunReport:
    """A run with its measurements; a missing measurement is None or empty."""

    run: Run
    parameters: Parameters
    bound: Point | None
    by_steps: list[Point]
    schedules: dict[str, Spread]
    frontiers: dict[str, list[Row]]  # by file
    samples: list[str]


def report_run(
    run: Run, budget: Budget | None, device: str = "auto", say: Callable[[str], None] = print
) -> RunReport:
    """All measurements of a run, cached ones and new ones.

    A measurement that fails is replaced by a cached one of the same budget, or left out.

    Args:
        run: the run.
        budget: rows and draws of a measurement; None measures nothing.
        device: the device to measure on.
        say: prints a line.
    """
    measuring = Measuring(run.folder, run.config, budget, device, say)
    cached = Measuring(run.folder, run.config, budget, device, say, measures=False)
    reported: set[str] = set()

    def measured_or_cached(figure: Callable[[Measuring], Figure]) -> Figure:
        try:
            return figure(measuring)
        except UnmaskError as error:
            if str(error) not in reported:
                say(f"{run.name}: {error}; the report shows only cached measurements of this run")
            reported.add(str(error))
            return figure(cached)

    return RunReport(
        run,
        run.parameters,
        measured_or_cached(Measuring.bound),
        measured_or_cached(Measuring.by_steps),
        measured_or_cached(Measuring.schedules),
        frontiers(run.folder),
        measured_or_cached(Measuring.samples),
    )
