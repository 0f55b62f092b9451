"""Measurements of a run, cached in its folder by weights and settings."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.config.components import outline
from unmask.config.run_config import RunConfig
from unmask.data.load import Data, first_sources, load_data
from unmask.data.rows.first_rows import FirstRows
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.diffusion.schedule import SCHEDULES
from unmask.errors import UnmaskError
from unmask.extensions.report.bound_by_steps import nats_by_steps, shares_draws
from unmask.extensions.report.schedule_variance import Spread, variance_by_schedule
from unmask.files.jsonl import JsonLines
from unmask.files.storage import MANIFEST, read_json
from unmask.likelihood.bound import perplexity_of
from unmask.likelihood.estimate import likelihood
from unmask.methods.method import METHODS
from unmask.model import Model, load
from unmask.options import check_options, option
from unmask.training.logs.progress import MeasureProgress

FILE = "measurements.jsonl"
STEPS = (10, 20, 50, 100, 200, 500, 1000, 0)  # Table 11's T; 0 is continuous time
CURVE_ROWS = 64  # rows of a point of a curve, unless they are given
COMPARED = ("loglinear", "cosine", "cosine_squared", "linear")  # the paper's schedules

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Budget:
    """The size of a measurement: rows of the validation text and noise draws per row.

    By default the bound is that of `unmask evaluate`: all rows and its draws. Curves take fewer rows.
    """

    rows: int | None = None  # the first rows; 0 = all; None = all for the bound, 64 for curves
    draws: int = option(8, ge=2)  # the spread of the draws gives the error
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rows not in (0, None) and self.rows < 2:
            raise UnmaskError(f"rows must be 0 (all), or 2 or more, not {self.rows}")
        check_options(self)

    @property
    def bound_rows(self) -> int:
        """Rows of the bound; 0 = all."""
        return self.rows or 0

    @property
    def curve_rows(self) -> int:
        """Rows of a point of a curve; 0 = all."""
        return CURVE_ROWS if self.rows is None else self.rows


@dataclass(frozen=True)
class Point:
    """A bound in nats per token with its standard error, tokens and draws."""

    steps: int  # T; 0 is continuous time, or a method without time
    nats: float
    error: float
    certificate: str
    bits_per_byte: float
    tokens: int
    draws: int
    by_draw: Sequence[float] = ()  # of independent groups of draws, if points share their draws
    freedom: float = math.inf  # degrees of freedom of the error
    text_estimated: bool = False  # True if the bytes of the rows are estimated from their tokens

    @property
    def perplexity(self) -> float:
        return perplexity_of(self.nats)

    @property
    def perplexity_error(self) -> float:
        return scaled(self.perplexity, self.error)

    @property
    def bits_per_byte_error(self) -> float:
        return self.bits_per_byte / self.nats * self.error if self.error else 0.0


def scaled(value: float, error: float) -> float:
    """The standard error of a perplexity `value`, from that of its nats; 0 if that is 0."""
    return value * error if error else 0.0


def figures(found: Point | Spread) -> dict[str, Any]:
    """All fields of a measurement for JSON; an unknown error is null."""
    content = asdict(found)
    if isinstance(found, Point):
        content["bits_per_byte_error"] = found.bits_per_byte_error
    return _null_for_infinity(content)


def _null_for_infinity(found: Record) -> dict[str, Any]:
    """A record with null in place of infinity, which JSON lacks."""
    return {name: None if value == math.inf else value for name, value in found.items()}


class Measuring:
    """The measurements of one run, read from its cache or made anew.

    Args:
        run: the run folder.
        config: the run's configuration.
        budget: rows and draws; cached results of other budgets are ignored. None = use any cached
            result and measure nothing.
        device: the device to measure on.
        say: prints a line.
        measures: False = use only the cache.
    """

    def __init__(
        self,
        run: Path,
        config: RunConfig,
        budget: Budget | None,
        device: str = "auto",
        say: Callable[[str], None] = print,
        measures: bool = True,
    ) -> None:
        self.run, self.config, self.budget = run, config, budget
        self.measures = measures and budget is not None
        self.device, self.say = device, say
        self._lines = JsonLines(run / FILE)
        self._hashes: dict[int, Record] = {}  # of the first rows, by their number

    def bound(self) -> Point | None:
        """The bound of the run's method; None if it is not cached and may not be measured."""
        return self._point(None, self.budget.bound_rows if self.budget else 0)

    def by_steps(self, steps: Sequence[int] = STEPS) -> list[Point]:
        """The bounds in T steps of a method in continuous time (Table 11);
        empty for other methods.
        """
        if getattr(self.config.method.config, "steps", None) != 0:
            return []
        rows = self.budget.curve_rows if self.budget else 0
        found = [
            self._shared_point(T) if self._shares_draws(T) else self._point(T or None, rows)
            for T in steps
        ]
        return [point for point in found if point is not None]

    def schedules(self, names: Sequence[str] = COMPARED) -> dict[str, Spread]:
        """Variance of the training loss by schedule; empty if the method fixes its schedule."""
        if not self._changes_schedule():
            return {}
        found = {name: self._schedule(name) for name in names}
        return {name: spread for name, spread in found.items() if spread is not None}

    def samples(self, n: int = 2) -> list[str]:
        """The last samples of samples.jsonl; without any, `n` newly generated texts."""
        written = JsonLines(self.run / "samples.jsonl").read()
        if written:
            return [str(text) for text in written[-1]["samples"]]
        seed = self.budget.seed if self.budget else 0
        rows = self.budget.bound_rows if self.budget else 0
        text = self._text_hash(rows) if self.config.data.paired else {}
        settings = {"n": n, "seed": seed, **text}
        found = self._cached("samples", {}, settings, lambda: {"texts": self._texts(n, seed)})
        return found["texts"] if found else []

    @cached_property
    def weights(self) -> str | None:
        """The hash of the measured weights; None before the first validation."""
        for folder in (self.run / "model", self.run / "checkpoints" / "best"):
            if (folder / MANIFEST).exists():
                return str(read_json(folder / MANIFEST)["model.safetensors"])
        return None

    @cached_property
    def _reads_time(self) -> bool:
        """True if the network reads the time, by the built network: some have no setting for it."""
        return outline(self.config).backbone.time_conditioning

    @cached_property
    def _model(self) -> Model:
        return load(self.run, self.device)

    @cached_property
    def _data(self) -> Data:
        return load_data(self.config.data, load_tokenizer(self.run / "tokenizer"))

    def _rows(self, count: int) -> FirstRows:
        """The first rows of the validation text; all if `count` is 0."""
        return FirstRows(self._data.valid, count)

    def _text_hash(self, count: int) -> Record:
        """The fingerprint of the first rows; empty if they cannot be read."""
        if self.budget is None or self.weights is None:
            return {}
        if count not in self._hashes:
            self._hashes[count] = {}
            try:
                self._hashes[count] = {"text": self._rows(count).fingerprint()}
            except UnmaskError as error:
                if self.measures:
                    self.say(
                        f"{self.run}: {error}; cached measurements are assumed to be of this text"
                    )
        return self._hashes[count]

    def _progress(self) -> MeasureProgress:
        return MeasureProgress("measured", self.say)

    def _point(self, steps: int | None, count: int) -> Point | None:
        """The bound of `count` rows in `steps` steps; the method's own bound if `steps` is None."""
        own = getattr(self.config.method.config, "steps", 0)

        def measure() -> Record:
            assert self.budget is not None
            model, draws, seed = self._model, self.budget.draws, self.budget.seed
            rows, progress = self._rows(count), self._progress()
            with model.method.arithmetic():
                bound = likelihood(
                    model.method, rows, draws=draws, seed=seed, steps=steps, progress=progress
                )
            names = {field.name for field in fields(Point)} - {"steps", "by_draw"}
            return {"steps": steps or own, **{name: getattr(bound, name) for name in names}}

        found = self._cached("bound", {"steps": steps}, self._settings(count), measure)
        return Point(**found) if found else None

    def _shared_point(self, steps: int) -> Point | None:
        """The bound in `steps` steps, from the draws that all points of the curve share."""

        def measure() -> Record:
            nats, bound = self._curve[steps], self._continuous
            value = float(nats.mean())
            scale = value / bound.nats  # bits per byte are proportional to nats per token
            own = {"steps": steps, "nats": value, "by_draw": nats.tolist()}
            if steps:
                error = float(nats.std()) / math.sqrt(len(nats))
                own |= {"error": error, "freedom": len(nats) - 1.0}
            return {**asdict(bound), **own, "bits_per_byte": bound.bits_per_byte * scale}

        found = self._cached("curve", {"T": steps}, self._curve_settings(), measure)
        return Point(**found) if found else None

    def _shares_draws(self, steps: int) -> bool:
        """True if the noise draws of continuous time also give the bound in `steps` steps."""
        config = self.config
        fixed = not self._reads_time and config.schedule.name != "learned"
        return fixed and shares_draws(config.schedule.config, config.data.length, steps)

    @cached_property
    def _continuous(self) -> Point:
        assert self.budget is not None
        point = self._point(None, self.budget.curve_rows)
        assert point is not None  # only called by a measurement
        return point

    @cached_property
    def _curve(self) -> dict[int, Tensor]:
        """Nats of each group of draws by T, for all points that share their draws, in one pass."""
        assert self.budget is not None
        method, budget = self._model.method, self.budget
        rows, steps = self._rows(budget.curve_rows), [T for T in STEPS if self._shares_draws(T)]
        with method.arithmetic():
            return nats_by_steps(method, rows, steps, draws=budget.draws, seed=budget.seed)

    def _schedule(self, name: str) -> Spread | None:
        def measure() -> Record:
            assert self.budget is not None
            method, draws, seed = self._model.method, self.budget.draws, self.budget.seed
            rows, schedules = self._rows(self.budget.curve_rows), {name: SCHEDULES.build(name)}
            with method.arithmetic():
                found = variance_by_schedule(method, rows, schedules, draws=draws, seed=seed)
            return asdict(found[name])

        found = self._cached("schedule", {"schedule": name}, self._curve_settings(), measure)
        return Spread(**found) if found else None

    def _texts(self, n: int, seed: int) -> list[str]:
        """Generated texts, as during training: unconditional, or for the first sources."""
        if not self._model.conditional:
            return [str(result) for result in self._model.generate(n=n, seed=seed)]
        sources = first_sources(self._data, n)
        targets = self._model.generate(sources, seed=seed)
        return [f"{source} → {target}" for source, target in zip(sources, targets, strict=True)]

    def _curve_settings(self) -> Record:
        return self._settings(self.budget.curve_rows if self.budget else 0)

    def _settings(self, count: int) -> Record:
        """The settings of a measurement: validation text, rows, draws and seed, for the cache."""
        data, budget = self.config.data, self.budget
        source = {"valid": data.valid or f"{data.holdout:g} of {data.trained_on}"}
        if budget is None:
            return source
        own = {"rows": count, "draws": budget.draws, "seed": budget.seed}
        return {**source, **self._text_hash(count), **own}

    def _cached(
        self, kind: str, what: Record, settings: Record, measure: Callable[[], Record]
    ) -> dict[str, Any] | None:
        """A cached result, or a new one, or None if nothing may be measured.

        With a budget, a cached result must have the same settings.

        Args:
            kind: the kind of measurement.
            what: the parameters of this measurement.
            settings: the settings that all measurements share.
            measure: returns a new result.
        """
        key = {"kind": kind, "weights": self.weights, **what}
        own = [record for record in self._lines.read() if key.items() <= record.items()]
        if self.budget is not None:
            # the hash of known rows includes their number
            wanted = {k: v for k, v in settings.items() if k != "rows" or "text" not in settings}
            own = [record for record in own if wanted.items() <= record["settings"].items()]
        if own:
            return _infinity_for_null(own[-1]["result"])
        if not self.measures or self.weights is None:
            return None
        about = [f"{name} {value}" for name, value in what.items() if value is not None]
        self.say(f"measuring {self.run}: {', '.join(about) or kind}")
        result = dict(measure())
        self._lines.write({**key, "settings": settings, "result": _null_for_infinity(result)})
        return result

    def _changes_schedule(self) -> bool:
        """True if another schedule changes the noise and nothing else."""
        config = self.config
        return (
            METHODS[config.method.name].capabilities.time_bound
            and not getattr(config.method.config, "steps", 0)
            and not self._reads_time
            and config.schedule.name != "learned"
        )


def _infinity_for_null(found: Record) -> dict[str, Any]:
    """The inverse of `_null_for_infinity`: infinity in place of null."""
    return {name: math.inf if value is None else value for name, value in found.items()}
