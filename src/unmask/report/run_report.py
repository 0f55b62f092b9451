"""What a run folder tells: its settings, its log, its samples, and what was measured of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from unmask.config.run_config import flatten
from unmask.errors import UnmaskError
from unmask.evaluation.suites.sample_rows import Row, stored
from unmask.likelihood.schedule_variance import Spread
from unmask.runs.measurements import FILE, Budget, Measuring, Point
from unmask.runs.run_folder import Parameters, Run
from unmask.training.logs.run_log import LOGS

Figure = TypeVar("Figure")

_OTHER = {*LOGS, FILE}  # the JSON lines of a run that are no rows of a comparison


def frontiers(folder: Path) -> dict[str, list[Row]]:
    """The rows of comparisons that a run folder holds, by file."""
    found = {}
    for file in sorted(folder.glob("*.jsonl")):
        if file.name not in _OTHER:
            try:
                found[file.name] = stored(file)
            except UnmaskError:  # somebody else's lines
                continue
    return found


@dataclass(frozen=True)
class RunReport:
    """A run with its figures; what could not be had is empty."""

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
    """All figures of a run, measured within the budget where they are missing; None measures nothing.

    What cannot be measured is left out, unless it was measured before, within the same budget.
    """
    measuring = Measuring(run.folder, run.config, budget, device, say)
    before = Measuring(run.folder, run.config, budget, device, say, measures=False)
    told: set[str] = set()

    def have(figure: Callable[[Measuring], Figure]) -> Figure:
        try:
            return figure(measuring)
        except UnmaskError as error:
            if str(error) not in told:
                say(f"{run.name}: {error}; of that only what was measured before is shown")
            told.add(str(error))
            return figure(before)

    return RunReport(
        run,
        run.parameters,
        have(Measuring.bound),
        have(Measuring.by_steps),
        have(Measuring.schedules),
        frontiers(run.folder),
        have(Measuring.samples),
    )


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The settings in which runs differ, by their dotted names; None where a run has no such setting."""
    flat = [flatten(run.config) for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    values = {name: [settings.get(name) for settings in flat] for name in names}
    return {name: each for name, each in values.items() if any(v != each[0] for v in each)}
