"""Rows of a comparison of samplers, and the JSON-lines file that stores them."""

import math
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.errors import UnmaskError
from unmask.files.jsonl import JsonLines

if TYPE_CHECKING:
    from unmask.evaluation.metrics.text_quality import Quality

JUDGED = ("perplexity", "bits_per_byte")  # like nats, upper bounds if the judge computes one

DATA = "data"  # sampler name of the row of real text


@dataclass(frozen=True)
class Setting:
    """One setting of a comparison. `steps` is None for a sampler without steps
    and for real text.
    """

    sampler: str
    steps: int | None = None
    temperature: float | None = None

    def __str__(self) -> str:
        if self.sampler == DATA:
            return "real text"
        steps = "" if self.steps is None else f", {self.steps} steps"
        return f"{self.sampler}{steps}, temperature {self.temperature:g}"


FIGURES = (
    "nats", "bits_per_byte", "entropy", "distinct_1", "distinct_2", "distinct_3", "repetition", "mauve",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row(Setting):
    """The figures of one setting; errors are standard errors over the texts.

    `nats` is the judge's negative log-likelihood per token. `certificate` is "exact", or "upper" if
    the judge computes an upper bound. `intervals` holds the 95% bootstrap interval of each figure.
    Fields that older files lack are None.
    """

    n: int
    tokens: int  # in the judge's tokenizer
    calls: float | None  # network calls per text
    seconds: float | None  # per text: the seconds of its batch, divided by the batch size
    nats: float
    nats_error: float
    certificate: str
    entropy: float
    entropy_error: float
    distinct_2: float
    distinct_2_error: float
    repetition: float
    repetition_error: float
    length: int | None = None  # largest number of tokens of a text
    judge: str | None = None
    judge_digest: str | None = None  # hash of the judge
    bits_per_byte: float | None = None
    bits_per_byte_error: float | None = None
    distinct_1: float | None = None
    distinct_1_error: float | None = None
    distinct_3: float | None = None
    distinct_3_error: float | None = None
    mauve: float | None = None
    mauve_error: float | None = None
    intervals: dict[str, list[float]] | None = None

    @property
    def perplexity(self) -> float:
        return _exp(self.nats)

    @property
    def setting(self) -> Setting:
        return Setting(self.sampler, self.steps, self.temperature)

    def interval(self, name: str) -> tuple[float, float] | None:
        """The interval of a figure or of the perplexity; None if it is unknown."""
        if name == "perplexity":
            ends = self.interval("nats")
            return ends and (_exp(ends[0]), _exp(ends[1]))
        low, high = (self.intervals or {}).get(name, (math.nan, math.nan))
        return None if math.isnan(low) else (low, high)

    @classmethod
    def of(cls, setting: Setting, quality: "Quality", **about: Any) -> "Row":
        """A row from the quality of a setting's texts; `about` holds the other fields."""
        measured = {name: getattr(quality, name) for name in FIGURES}
        known = {name: figure for name, figure in measured.items() if figure is not None}
        figures: dict[str, Any] = {name: figure.value for name, figure in known.items()}
        figures |= {f"{name}_error": figure.error for name, figure in known.items()}
        ends = {name: [figure.low, figure.high] for name, figure in known.items()}
        return cls(
            **asdict(setting),
            **figures,
            intervals={name: pair for name, pair in ends.items() if math.isfinite(sum(pair))},
            tokens=quality.tokens,
            certificate=quality.certificate,
            **about,
        )

    def to_dict(self) -> dict[str, Any]:
        """All figures as a dictionary; an unknown error is None."""
        figures = {**asdict(self), "perplexity": self.perplexity}
        return {name: None if value == math.inf else value for name, value in figures.items()}

    @classmethod
    def from_dict(cls, figures: dict[str, Any]) -> "Row":
        """The row that `to_dict` wrote."""
        known = {field.name: figures[field.name] for field in fields(cls) if field.name in figures}
        unknown = {
            f"{name}_error": math.inf
            for name in FIGURES
            if known.get(name) is not None and known.get(f"{name}_error") is None
        }
        return cls(**known | unknown)


@dataclass(frozen=True)
class Conditions:
    """Conditions of a measurement, which all rows of a comparison share."""

    model: str
    judge: str
    n: int
    length: int
    sampling: dict[str, Any]  # further options of `generate`
    seed: int
    batch: int
    device: str
    precision: str
    judge_precision: str
    data: str | None = None  # source of real text; None is the model's validation text
    real: str | None = None  # `Real.name` of the real text


class StoredRows:
    """The stored rows of one comparison in a file."""

    def __init__(self, file: Path | None, conditions: Conditions) -> None:
        self._lines = None if file is None else JsonLines(file)
        self._conditions = asdict(conditions)
        self.rows: dict[Setting, Row] = {}
        self.others = 0  # rows of the file with other conditions
        if file is not None:
            records = _records(file)
            names = {field.name for field in fields(Row)}
            complete = [record for record in records if names <= record.keys()]
            self.rows = _rows_with(complete, self._conditions)
            self.others = sum(record["conditions"] != self._conditions for record in records)
            _prepare(file)

    def add(self, row: Row) -> None:
        """Appends a row to the file."""
        if self._lines:
            self._lines.write({**row.to_dict(), "conditions": self._conditions})


def stored(file: Path) -> list[Row]:
    """The rows of the last comparison that wrote to a file."""
    records = _records(file)
    if not records:
        raise UnmaskError(
            f"{file} holds no rows: make them with 'unmask evaluate generation --out'"
        )
    return list(_rows_with(records, records[-1]["conditions"]).values())


def _records(file: Path) -> list[dict[str, Any]]:
    """The lines of a file of rows, without a truncated last one."""
    records = JsonLines(file).read()
    needed = [field.name for field in fields(Row) if field.default is MISSING]
    names = {"conditions", *needed}
    if not all(isinstance(record, dict) and names <= record.keys() for record in records):
        raise UnmaskError(f"{file} holds lines that are no rows of a comparison: give another file")
    return records


def _rows_with(records: list[dict[str, Any]], conditions: dict[str, Any]) -> dict[Setting, Row]:
    """The rows with these conditions, by setting."""
    rows = [Row.from_dict(record) for record in records if record["conditions"] == conditions]
    return {row.setting: row for row in rows}


def _prepare(file: Path) -> None:
    """Makes the file ready for new lines: creates its folder, and ends a truncated last line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as lines:
        if file.stat().st_size and not file.read_bytes().endswith(b"\n"):
            lines.write(b"\n")


def _exp(nats: float) -> float:
    from unmask.likelihood.bound import perplexity_of

    return perplexity_of(nats)
