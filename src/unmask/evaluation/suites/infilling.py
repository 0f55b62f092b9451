"""Gaps of held-out text filled by a model, by the same model from left to right, and by one that sees the left only."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unmask.errors import UnmaskError
from unmask.evaluation.judges.causal_lm import CausalJudge
from unmask.evaluation.metrics.gap_quality import Filling, Gap, middle_gap, score
from unmask.evaluation.suites.sample_quality import settings
from unmask.evaluation.suites.sample_rows import DATA, Setting
from unmask.evaluation.suites.sample_texts import Say
from unmask.generation.generator import Running
from unmask.generation.prompts import Job
from unmask.generation.sampling_params import Sampling
from unmask.likelihood.perplexity import Source, rows_of
from unmask.model import Model
from unmask.samplers.sampler import Sampler

_BLOCK = 256  # rows looked through at a time


@dataclass(frozen=True)
class FilledRow:
    """How well one setting filled the gaps, and what it saw of the text around them."""

    setting: Setting
    sees: str  # "both sides", "left side", or nothing for real text
    n: int
    filling: Filling
    steps: int | None = None  # that were taken; a sampler without steps has none
    baseline: bool = False  # whether it was the baseline that filled

    def to_dict(self) -> dict[str, Any]:
        """All figures, for a log; what is not known is null."""
        figures = {
            f"{name}{part}": value
            for name, figure in asdict(self.filling).items()
            if figure is not None
            for part, value in zip(("", "_error", "_low", "_high"), figure.values(), strict=True)
        }
        known = {name: x if math.isfinite(x) else None for name, x in figures.items()}
        point = {**asdict(self.setting), "steps": self.steps}
        return {**point, "baseline": self.baseline, "sees": self.sees, "n": self.n, **known}


def infill(
    model: Model,
    *,
    baseline: Model | None = None,
    judge: CausalJudge | None = None,
    data: Source = None,
    n: int = 256,
    gap: int = 8,
    samplers: Sequence[str] | None = None,
    steps: Sequence[int | None] = (None,),
    temperatures: Sequence[float] = (1.0,),
    seed: int = 0,
    batch: int = 64,
    say: Say = print,
    done: Callable[[FilledRow], None] = lambda row: None,
) -> list[FilledRow]:
    """Fills a gap of `gap` tokens in the middle of `n` held-out texts, beside what stood there.

    They are those of `data` (texts or a source), or the model's own validation text. An autoregressive
    model or `baseline` sees the left side only. Steps are as many as the gap has tokens unless given.
    """
    for who in (model, baseline):
        if who is not None:
            who.refuse_pairs(NO_GAPS)
    if n < 1 or gap < 1:
        raise UnmaskError(f"samples and gap must be 1 or more, not {n} and {gap}")
    if baseline is not None and baseline.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise UnmaskError("the baseline has another tokenizer: take one trained on the same tokens")
    if baseline is not None and not _one_sided(baseline):
        raise UnmaskError("the baseline is an autoregressive model, which sees the left side only")
    if samplers is None:
        samplers = ["left_to_right"] if _one_sided(model) else ["ancestral", "left_to_right"]
    counts: Any = list(steps)
    asked = [(model, point) for point in settings(model, samplers, counts, temperatures)]
    if baseline is not None:
        asked += [
            (baseline, point)
            for point in settings(baseline, ["left_to_right"], counts, temperatures)
        ]
    gaps = held_out_gaps(model, n, gap, say, data)
    runs = [(who, point, _running(who, gaps, point, seed, batch)) for who, point in asked]
    rows: list[FilledRow] = []

    def tell(point: Setting, sees: str, fillings: list[list[int]], **about: Any) -> None:
        found = score(gaps, fillings, model.tokenizer.decode, judge, seed)
        rows.append(FilledRow(point, sees, len(gaps), found, **about))
        done(rows[-1])

    tell(Setting(DATA), "", [place.ids[place.start : place.stop] for place in gaps])
    for who, point, running in runs:
        results = running.results()
        tokens = [
            result.ids[place.start : place.stop]
            for result, place in zip(results, gaps, strict=True)
        ]
        sees = "left side" if _one_sided(who) else "both sides"
        tell(point, sees, tokens, steps=_steps(running.sampler), baseline=who is baseline)
    return rows


def held_out_gaps(model: Model, n: int, width: int, say: Say, data: Source = None) -> list[Gap]:
    """The first `n` texts of held-out rows that are long enough, each with its gap."""
    rows = rows_of(model, data)
    labels = list(model.tokenizer.labels.values())
    found: list[Gap] = []
    for first in range(0, len(rows), _BLOCK):
        x, valid = rows[range(first, min(first + _BLOCK, len(rows)))]
        texts = [row[there].tolist() for row, there in zip(x, valid, strict=True)]
        gaps = [middle_gap(text, model.tokenizer.vocabulary, labels, width) for text in texts]
        found += [place for place in gaps if place is not None]
        if len(found) >= n:
            return found[:n]
    which = "validation text" if data is None else "given text"
    if not found:
        raise UnmaskError(
            f"no {which} has the {3 * width} tokens that a gap of {width} needs: take a smaller one"
        )
    say(f"the {which} has {len(found)} texts of {3 * width} tokens or more, not {n}")
    return found


def _steps(sampler: Sampler) -> int | None:
    return getattr(sampler.unwrapped(), "steps", None)


def _one_sided(model: Model) -> bool:
    return not model.method.capabilities.infill


def _running(model: Model, gaps: list[Gap], point: Setting, seed: int, batch: int) -> Running:
    """The gaps as rows to fill; a model that reads from left to right is not shown what follows."""
    mask_id = model.tokenizer.vocabulary.mask_id
    hidden = [gap.filled([mask_id] * (gap.stop - gap.start)) for gap in gaps]
    if _one_sided(model):
        hidden = [row[: gap.stop] for row, gap in zip(hidden, gaps, strict=True)]
    options = {name: value for name, value in asdict(point).items() if value is not None}
    width = gaps[0].stop - gaps[0].start
    job = Job(hidden, 0, [gap.start for gap in gaps], ends=False, openings=width)
    return Running(model, job, Sampling.of({**options, "seed": seed, "batch": batch}))


NO_GAPS = "it fills no gaps in text; 'unmask evaluate MODEL --suite translation' scores it"
