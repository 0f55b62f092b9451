"""The suite `generation`: comparison of samplers by quality, diversity,
network calls and seconds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.errors import UnmaskError, unknown
from unmask.evaluation.suites.sample_rows import JUDGED, stored
from unmask.evaluation.suites.sample_rows import Row as SampleRow
from unmask.evaluation.suites.suite import SUITES, Progress, Suite
from unmask.imports import install_command
from unmask.likelihood.figure_text import signed, with_error, with_interval
from unmask.options import changed_options, option

if TYPE_CHECKING:
    from unmask.evaluation.judges.causal_lm import CausalJudge
    from unmask.model import Model

ITSELF = "self"  # name of the model as its own judge
ALL = "all"  # stands for all samplers
NO_STEPS = "--steps has no effect: none of the samplers has steps"
_MANY = 200  # MAUVE of fewer texts is coarse
_PUBLISHED = ("openai-community/gpt2-large", "gpt2-large")  # the judge of published figures
_KINDS = (".png", ".svg", ".pdf", ".jsonl")
_SHARED = {
    "judge_digest": "by another judge",
    "n": "on another number of texts",
    "length": "at another length",
}
_FIGURES = {
    "perplexity": "perplexity",
    "bits_per_byte": "bits / byte",
    "entropy": "entropy",
    "mauve": "MAUVE",
    "distinct_2": "distinct-2",
    "repetition": "repeated-4",
}


@dataclass(frozen=True)
class GenerationOptions:
    """Options of the suite `generation`."""

    samplers: list[str] | None = option(
        None,
        metavar="NAME",
        help="samplers, as in 'unmask list samplers', NAME:field=value,… or all; by default the method's own",
    )
    steps: list[int] = option([8, 32, 128], help="numbers of denoising steps")
    temperatures: list[float] = option([1.0], help="softmax temperatures")
    sampling: list[str] | None = option(
        None, metavar="NAME=VALUE", help="further options of 'unmask generate', such as top_p=0.9"
    )
    samples: int = option(256, ge=1, help="texts of each setting")
    length: int | None = option(None, help="tokens of a text; by default the model's length")
    data: str | None = option(
        None, metavar="SOURCE", help="real text; by default the model's validation text"
    )
    seed: int = option(0, help="seed; equal seeds give equal texts")
    batch: int = option(64, ge=1, help="texts of one batch")
    judge: str | None = option(
        None,
        metavar="JUDGE",
        group="judge",
        help="causal model by hub name, folder or .gguf file, a run, or self for the model (GPT-2-large)",
    )
    judge_prefix: str | None = option(
        None,
        metavar="TOKEN",
        group="judge",
        help="token before each text in the judge's input; by default <|endoftext|> or its BOS",
    )
    out: Path | None = option(
        None,
        group="output",
        help="plot to write (.png, .svg or .pdf), with its rows in a .jsonl file; stored rows are reused",
    )
    beside: list[Path] | None = option(
        None,
        group="output",
        help="stored rows of other models by the same judge (.jsonl), for the same table and plot",
    )

    def __post_init__(self) -> None:
        _check_out(self.out)
        if self.judge == ITSELF:
            check_prefix(None, self.judge_prefix)
        for text in self.sampling or ():
            if "=" not in text:
                raise UnmaskError(
                    f"--sampling {text!r} has no value: give NAME=VALUE, as top_p=0.9"
                )
        for file in self.beside or ():
            _existing(file)


@SUITES.register("generation")
class Generation(Suite):
    """Quality, diversity and cost of texts, beside real text."""

    Options = GenerationOptions
    Row = SampleRow
    reads = "or stored rows of --out (.jsonl)"
    examples = (
        "runs/demo --judge self --samplers all --steps 8,32 --samples 16 --out frontier.png",
        "frontier.jsonl --beside other.jsonl --out both.svg",
    )

    def rows(
        self, model: "Model", options: GenerationOptions, progress: Progress
    ) -> Iterator[SampleRow]:
        from unmask.evaluation.judges.load_judge import DEFAULT_JUDGE
        from unmask.evaluation.suites import sample_quality as quality

        model.refuse_pairs(quality.NO_TEXTS)  # before a judge is fetched
        judge = None
        if options.judge != ITSELF:
            judge = chosen_judge(model, options.judge or DEFAULT_JUDGE, options.judge_prefix)
        samplers = options.samplers or quality.usual_samplers(model)
        if ALL in samplers:
            samplers = quality.default_samplers(model)
        points = quality.settings(model, samplers, options.steps, options.temperatures)
        progress.expect(["real text", *map(str, points)])
        if "steps" in changed_options(options) and all(point.steps is None for point in points):
            progress.say(NO_STEPS)
        file = options.out.with_suffix(".jsonl") if options.out else None
        measured = quality.compared(
            model,
            points,
            judge,
            options.data,
            file,
            progress.say,
            n=options.samples,
            length=options.length,
            sampling=dict(text.partition("=")[::2] for text in options.sampling or ()),
            seed=options.seed,
            batch=options.batch,
        )
        try:
            yield from _with_others(measured, _others(options), options.out)
        except KeyboardInterrupt:
            if file is None:
                raise
            raise KeyboardInterrupt(f"{file} holds the rows; the same command continues") from None

    def saved(self, source: str | None, options: GenerationOptions) -> Iterator[SampleRow] | None:
        if source is None or Path(source).suffix != ".jsonl":
            return None
        for name in changed_options(options):
            if name not in ("samplers", "out", "beside"):
                flag = name.replace("_", "-")
                raise UnmaskError(
                    f"--{flag} is for a model, and {source} holds measured rows: leave it out"
                )
        rows = _chosen(stored(_existing(Path(source))), options.samplers)
        others = _others(options)
        for row in rows:
            _check_beside(row, others)
        return _with_others(rows, others, options.out)

    def cells(self, row: SampleRow) -> dict[str, str]:
        return {
            "sampler": "real text" if row.calls is None else row.sampler,
            "steps": "" if row.steps is None else str(row.steps),
            "temp": "" if row.temperature is None else f"{row.temperature:g}",
            "calls": "" if row.calls is None else f"{row.calls:.1f}",
            "s / text": "" if row.seconds is None else f"{row.seconds:.3g}",
            "nats / token": signed(row.certificate, with_error(row.nats, row.nats_error)),
            **{title: _cell(row, name) for name, title in _FIGURES.items()},
        }

    def notes(self, rows: Sequence[SampleRow]) -> list[str]:
        lines = [f"judge: {name}" for name in dict.fromkeys(row.judge for row in rows if row.judge)]
        measured = [row for row in rows if row.mauve is not None]
        if not all(published(row.judge or "") for row in rows):  # older rows lack the judge's name
            figures = "perplexity and MAUVE" if measured else "perplexity"
            lines.append(f"not GPT-2-large: {figures} cannot be compared with published ones")
        if measured and measured[0].n < _MANY:
            lines.append(f"MAUVE of {measured[0].n} texts has few clusters and is coarse")
        if any(row.intervals for row in rows):
            lines.append(
                "[low, high]: 95% bootstrap over texts, BCa (MAUVE: normal, over seeds too)"
            )
        return lines


def chosen_judge(model: "Model", name: str, prefix: str | None) -> "Model | CausalJudge":
    """Loads a judge on the model's device."""
    from unmask.evaluation.judges import load_judge as judges

    return judges.load_judge(name, str(model.device), prefix)


def check_prefix(judge: str | None, prefix: str | None) -> None:
    """Raises an error for a judge's prefix without a judge."""
    if prefix is not None and judge is None:
        raise UnmaskError(
            "--judge-prefix needs a --judge with its own tokenizer: give one, or leave the prefix out"
        )


def published(judge: str) -> bool:
    """True for GPT-2-large, the judge of published figures."""
    return judge.partition(" after ")[0] in _PUBLISHED


def _others(options: GenerationOptions) -> dict[Path, list[SampleRow]]:
    """The stored rows of other models, by file, without real text.
    Sampler names get the file's name.
    """
    return {
        file: [
            replace(row, sampler=f"{row.sampler}, {file.stem}")
            for row in stored(file)
            if row.calls is not None
        ]
        for file in options.beside or ()
    }


def _with_others(
    rows: Iterable[SampleRow], others: dict[Path, list[SampleRow]], out: Path | None
) -> Iterator[SampleRow]:
    """Yields the rows and then those of other models, and draws the plot of all of them."""
    shown = []
    for row in rows:
        _check_beside(row, others)  # at the first row, before hours of measuring
        shown.append(row)
        yield row
    for group in others.values():
        shown += group
        yield from group
    if out is not None and out.suffix != ".jsonl":
        from unmask.evaluation.suites.frontier_plot import draw

        draw(shown, out)


def _check_beside(own: SampleRow, others: dict[Path, list[SampleRow]]) -> None:
    """Raises an error for rows of other files with another judge, n or length."""
    for file, rows in others.items():
        for row in rows[:1]:  # all rows of a file have the same conditions
            for name, how in _SHARED.items():
                real = own.calls is None and name == "n"  # there may be fewer real texts
                if not real and getattr(row, name) != getattr(own, name):
                    theirs, ours = _condition(row, name), _condition(own, name)
                    raise UnmaskError(
                        f"{file} was measured {how}: {theirs}, not {ours}; measure both with the "
                        "same settings"
                    )


def _condition(row: SampleRow, name: str) -> str:
    """A condition of a row as text, with the judge's name for its hash."""
    described = row.judge if name == "judge_digest" else None
    return str(described or getattr(row, name))


def _chosen(rows: list[SampleRow], samplers: list[str] | None) -> list[SampleRow]:
    """The rows of real text and of the given samplers; without names, all rows."""
    if samplers is None or ALL in samplers:
        return rows
    known = {row.sampler for row in rows if row.calls is not None}
    for name in samplers:
        if name not in known:
            raise unknown("sampler of these rows", name, known)
    return [row for row in rows if row.calls is None or row.sampler in samplers]


def _cell(row: SampleRow, name: str) -> str:
    """A figure with its interval, or with its error if the interval is unknown,
    as in older files.
    """
    value, ends = getattr(row, name), row.interval(name)
    if value is None:
        return ""
    if ends is not None:
        figure = with_interval(value, *ends)
    elif name == "perplexity":
        figure = with_error(value, value * row.nats_error)
    else:
        figure = with_error(value, getattr(row, f"{name}_error"))
    return signed(row.certificate, figure) if name in JUDGED else figure


def _check_out(out: Path | None) -> None:
    """Raises an error, before hours of measuring, if the plot cannot be drawn."""
    if out is None or out.suffix == ".jsonl":
        return
    if out.suffix not in _KINDS:
        raise UnmaskError(f"--out {out} has an unknown ending: give .png, .svg, .pdf or .jsonl")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UnmaskError(
            f"--out {out} needs matplotlib: {install_command('log')}. Or give a .jsonl file and "
            "draw it on another machine"
        ) from None


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise UnmaskError(
            f"no file {file}: give a model, or a .jsonl file of 'unmask evaluate generation --out'"
        )
    return file
