"""What a run folder tells: its settings, its log, its samples, and what was measured of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from unmask.api.build import outline
from unmask.api.measuring import FILE, Budget, Measuring, Point
from unmask.api.rows import Row, stored
from unmask.config.run import RunConfig, flatten, load_recipe, resolve
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.errors import UnmaskError
from unmask.likelihood.schedule_variance import Spread
from unmask.training.logs.run_log import LOGS, read_log
from unmask.vocabulary import Vocabulary

Figure = TypeVar("Figure")

_OTHER = {*LOGS, FILE}  # the JSON lines of a run that are no rows of a comparison


@dataclass(frozen=True)
class Parameters:
    """How many numbers a network has learned, with and without those that stand for tokens."""

    total: int
    non_embedding: int


@dataclass(frozen=True)
class Run:
    """A run folder, read: nothing in it is computed."""

    name: str
    folder: Path
    config: RunConfig
    log: list[dict[str, Any]]

    @property
    def losses(self) -> list[tuple[int, float]]:
        """The training loss by step."""
        return [(record["step"], record["loss"]) for record in self.log if "loss" in record]

    @property
    def validations(self) -> list[tuple[int, float, float]]:
        """The validation bound by step, with its error."""
        found = [record for record in self.log if "validation" in record]
        return [(r["step"], r["validation"]["nats"], r["validation"]["error"]) for r in found]

    @property
    def step(self) -> int:
        return max(record["step"] for record in self.log)

    @property
    def tokens(self) -> int:
        """Tokens trained on, epochs counted again."""
        return int(self._last("tokens"))

    @property
    def seconds(self) -> float:
        """Time spent on training steps, validation and saving not counted."""
        return float(self._last("seconds"))

    @property
    def parameters(self) -> Parameters:
        return count_parameters(self.config, load_tokenizer(self.folder / "tokenizer").vocabulary)

    def _last(self, name: str) -> float:
        return next((record[name] for record in reversed(self.log) if name in record), 0)


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


def read_run(folder: str | Path, name: str | None = None) -> Run:
    """The run in a folder, or an error that says what the folder lacks."""
    path = Path(folder)
    if not path.is_dir():
        raise UnmaskError(f"no run {str(folder)!r}: give a folder that 'unmask train' made")
    if not (path / "config.yaml").is_file():
        raise UnmaskError(
            f"{str(folder)!r} is no run: it has no config.yaml; give a folder that 'unmask train' made"
        )
    config = resolve(load_recipe(str(path / "config.yaml")))
    log = [record for record in read_log(path) if "step" in record]
    if not log:
        raise UnmaskError(f"{str(folder)!r} has no log: let 'unmask train' take some steps there")
    return Run(name or path.resolve().name, path, config, log)


def read_runs(folders: Sequence[str | Path]) -> list[Run]:
    """Runs with names that tell them apart: the folder's own, or its path where two are alike."""
    paths = list(dict.fromkeys(Path(folder) for folder in folders))
    short = [path.resolve().name for path in paths]
    return [
        read_run(path, name if short.count(name) == 1 else str(path))
        for path, name in zip(paths, short, strict=True)
    ]


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


def count_parameters(config: RunConfig, vocabulary: Vocabulary) -> Parameters:
    """Counted on a network without memory."""
    sizes = {name: p.numel() for name, p in outline(config, vocabulary).named_parameters()}
    tokens = ("backbone.embedding.", "backbone.head.")
    rest = sum(size for name, size in sizes.items() if not name.startswith(tokens))
    return Parameters(sum(sizes.values()), rest)


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
