"""The suite `infilling`: gaps of held-out text,
filled with both sides or the left side as context.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from unmask.errors import UnmaskError
from unmask.evaluation.suites.generated_texts import (
    NO_STEPS,
    check_prefix,
    chosen_judge,
    published,
)
from unmask.evaluation.suites.sample_rows import DATA, Setting
from unmask.evaluation.suites.suite import SUITES, Progress, Suite
from unmask.likelihood.figure_text import with_interval
from unmask.options import option

if TYPE_CHECKING:
    from unmask.evaluation.judges.causal_lm import CausalJudge
    from unmask.evaluation.metrics.bootstrap import Figure
    from unmask.extensions.infilling.gap_quality import Filling, Gap
    from unmask.generation.generator import Generator
    from unmask.model import Model
    from unmask.samplers.sampler import Sampler

NO_GAPS = "it fills no gaps in text; score it with 'unmask evaluate translation MODEL'"


@dataclass(frozen=True)
class InfillingOptions:
    """Options of the suite `infilling`."""

    data: str | None = option(
        None, metavar="SOURCE", help="text for the gaps; by default the model's validation text"
    )
    samples: int = option(256, ge=1, help="gaps, one in each text")
    gap: int = option(8, ge=1, help="tokens of a gap")
    samplers: list[str] | None = option(
        None,
        metavar="NAME",
        help="samplers, as in 'unmask list samplers' or NAME:field=value,…; by default ancestral and left_to_right",
    )
    steps: list[int] | None = option(
        None, help="numbers of denoising steps; by default the tokens of the gap"
    )
    temperatures: list[float] = option([1.0], help="softmax temperatures")
    seed: int = option(0, help="seed; equal seeds give equal fillings")
    batch: int = option(64, ge=1, help="texts of one batch")
    baseline: str | None = option(
        None, metavar="MODEL", help="autoregressive model, which sees the left side only"
    )
    judge: str | None = option(
        None,
        metavar="JUDGE",
        group="judge",
        help="causal model by hub name, folder or .gguf file; by default none",
    )
    judge_prefix: str | None = option(
        None,
        metavar="TOKEN",
        group="judge",
        help="token before each text in the judge's input; by default <|endoftext|> or its BOS",
    )

    def __post_init__(self) -> None:
        check_prefix(self.judge, self.judge_prefix)


@dataclass(frozen=True)
class FilledRow:
    """The scored fillings of one setting."""

    setting: Setting
    sees: str  # context of a gap: "both sides", "left side", or "" for real text
    n: int
    filling: "Filling"
    steps: int | None = None  # None for a sampler without steps
    baseline: bool = False  # True for the baseline model
    judge: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """All figures as a dictionary."""
        figures = {
            f"{name}{part}": value
            for name, figure in asdict(self.filling).items()
            if figure is not None
            for part, value in zip(("", "_error", "_low", "_high"), figure.values(), strict=True)
        }
        known = {name: x if math.isfinite(x) else None for name, x in figures.items()}
        point = {"judge": self.judge, **asdict(self.setting), "steps": self.steps}
        return {**point, "baseline": self.baseline, "sees": self.sees, "n": self.n, **known}


@SUITES.register("infilling")
class Infilling(Suite):
    """Accuracy of filled gaps in held-out text."""

    Options = InfillingOptions
    Row = FilledRow
    examples = (
        "runs/demo --samples 64 --gap 4 --temperatures 0,1",
        "runs/stories --baseline runs/stories-ar --judge smollm2.gguf",
    )

    def rows(
        self, model: "Model", options: InfillingOptions, progress: Progress
    ) -> Iterator[FilledRow]:
        from unmask.evaluation.judges.causal_lm import CausalJudge
        from unmask.extensions.infilling.gap_quality import held_out_gaps
        from unmask.model import load

        model.refuse_pairs(NO_GAPS)  # before a judge is fetched
        baseline = load(options.baseline, str(model.device)) if options.baseline else None
        judge = None
        if options.judge is not None:
            found = chosen_judge(model, options.judge, options.judge_prefix)
            judge = found if isinstance(found, CausalJudge) else None
            if judge is None:
                raise UnmaskError(
                    f"the judge {options.judge} is a run: give a causal model with its own tokenizer"
                )
        points = settings_of(model, baseline, options.samplers, options.steps, options.temperatures)
        progress.expect(["real text", *(str(point) for _, point in points)])
        if options.steps is not None and all(point.steps is None for _, point in points):
            progress.say(NO_STEPS)
        gaps = held_out_gaps(model, options.samples, options.gap, progress.say, options.data)
        yield from filled(model, gaps, points, judge, options.seed, options.batch)

    def cells(self, row: FilledRow) -> dict[str, str]:
        return {
            "filled by": str(row.setting),
            "seeing": row.sees,
            "exact": _cell(row.filling.exact),
            "tokens right": _cell(row.filling.accuracy),
            "judge's PPL, gap": _perplexity(row.filling.gap),
            "and behind it": _perplexity(row.filling.after),
        }

    def notes(self, rows: Sequence[FilledRow]) -> list[str]:
        lines = [
            f"{rows[0].n} gaps; [low, high] is a 95% interval: Wilson for exact, BCa bootstrap for the rest"
        ]
        if rows[0].judge is not None:
            lines.append(f"judge: {rows[0].judge}")
            if not published(rows[0].judge):
                lines.append("not GPT-2-large: perplexity cannot be compared with published ones")
        return lines


def settings_of(
    model: "Model",
    baseline: "Model | None",
    samplers: Sequence[str] | None,
    steps: Sequence[int | None] | None,
    temperatures: Sequence[float],
) -> "list[tuple[Model, Setting]]":
    """The pairs of model and setting to measure.

    Args:
        model: The model that fills; an autoregressive one sees the left side only.
        baseline: An autoregressive model with the same tokenizer.
        samplers: Names; by default ancestral and left_to_right.
        steps: Numbers of denoising steps; by default the tokens of the gap.
        temperatures: Temperatures.
    """
    from unmask.evaluation.suites.sample_quality import settings

    if baseline is not None:
        baseline.refuse_pairs(NO_GAPS)
        fault = (
            ""
            if _one_sided(baseline)
            else "sees both sides of a gap: give an autoregressive model, which sees the left side only"
        )
        if baseline.tokenizer.fingerprint != model.tokenizer.fingerprint:
            fault = "has another tokenizer than the model: give one trained with the model's"
        if fault:
            raise UnmaskError(f"the baseline {fault}")
    if samplers is None:
        samplers = ["left_to_right"] if _one_sided(model) else ["ancestral", "left_to_right"]
    counts: Any = [None] if steps is None else list(steps)
    found = [(model, point) for point in settings(model, samplers, counts, temperatures)]
    if baseline is not None:
        own = settings(baseline, ["left_to_right"], counts, temperatures)
        found += [(baseline, point) for point in own]
    return found


def filled(
    model: "Model",
    gaps: "list[Gap]",
    points: "list[tuple[Model, Setting]]",
    judge: "CausalJudge | None",
    seed: int,
    batch: int,
) -> Iterator[FilledRow]:
    """Yields the row of the original text, then the row of each setting."""
    from unmask.extensions.infilling.gap_quality import score

    runs = [(own, point, _generator(own, gaps, point, seed, batch)) for own, point in points]
    name = f"{judge.name} after {judge.prefix}" if judge else None

    def row(point: Setting, sees: str, fillings: list[list[int]], **about: Any) -> FilledRow:
        found = score(gaps, fillings, model.tokenizer.decode, judge, seed)
        return FilledRow(point, sees, len(gaps), found, judge=name, **about)

    yield row(Setting(DATA), "", [gap.ids[gap.start : gap.stop] for gap in gaps])
    for own, point, generator in runs:
        tokens = [
            result.ids[gap.start : gap.stop]
            for result, gap in zip(generator.results(), gaps, strict=True)
        ]
        sees = "left side" if _one_sided(own) else "both sides"
        steps = _steps(generator.sampler)
        yield row(point, sees, tokens, steps=steps, baseline=own is not model)


def _steps(sampler: "Sampler") -> int | None:
    return getattr(sampler.unwrapped(), "steps", None)


def _one_sided(model: "Model") -> bool:
    return not model.method.capabilities.infill


def _generator(
    model: "Model", gaps: "list[Gap]", point: Setting, seed: int, batch: int
) -> "Generator":
    """A generator that fills the gaps. An autoregressive model gets no text after a gap."""
    from unmask.generation.generator import Generator
    from unmask.generation.prompts import FillRequest
    from unmask.generation.sampling_params import SamplingParams

    mask_id = model.tokenizer.vocabulary.mask_id
    rows = [gap.filled([mask_id] * (gap.stop - gap.start)) for gap in gaps]
    if _one_sided(model):
        rows = [row[: gap.stop] for row, gap in zip(rows, gaps, strict=True)]
    options = {name: value for name, value in asdict(point).items() if value is not None}
    width = gaps[0].stop - gaps[0].start
    request = FillRequest(rows, 0, [gap.start for gap in gaps], ends=False, openings=width)
    return Generator(model, request, SamplingParams.of({**options, "seed": seed, "batch": batch}))


def _cell(figure: "Figure") -> str:
    if math.isinf(figure.low):
        return f"{figure.value:.4f} ± ?"
    return with_interval(figure.value, figure.low, figure.high)


def _perplexity(figure: "Figure | None") -> str:
    from unmask.likelihood.bound import perplexity_of

    if figure is None or math.isnan(figure.value):
        return ""
    if math.isinf(figure.error):
        return f"{perplexity_of(figure.value):.4g} ± ?"
    return with_interval(*map(perplexity_of, (figure.value, figure.low, figure.high)))
