"""Sections of a report, for a terminal or an HTML page."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from unmask.cli.output.elements import Table, clock, setting
from unmask.evaluation.suites.sample_rows import JUDGED, Row
from unmask.extensions.report import plots as pictures
from unmask.extensions.report.measurements import CURVE_ROWS
from unmask.extensions.report.parts import Picture, Section, perplexity
from unmask.extensions.report.run_report import RunReport
from unmask.likelihood.figure_text import signed, with_error
from unmask.methods.method import METHODS
from unmask.runs.run_folder import Run, differences


def sections(reports: Sequence[RunReport]) -> list[Section]:
    """The sections of a report on some runs, in order."""
    return [
        _trained(reports),
        _curves(reports),
        _bounds(reports),
        _by_steps(reports),
        _schedules(reports),
        _frontiers(reports),
        _samples(reports),
    ]


def _trained(reports: Sequence[RunReport]) -> Section:
    names = [report.run.name for report in reports]
    facts = [_facts(report) for report in reports]
    rows = [[name, *(each[name] for each in facts)] for name in facts[0]]
    tables = [Table("Runs", ["", *names], rows)]
    if differing := differences([report.run for report in reports]):
        cells = [[name, *map(setting, values)] for name, values in differing.items()]
        tables.append(Table("Settings that differ", ["setting", *names], cells))
    note = (
        "Tokens count every epoch. Time is that of training steps, without validation and saving."
    )
    return Section("Training", note, tables)


def _facts(report: RunReport) -> dict[str, str]:
    """The facts of a run, by row of the table."""
    run, size = report.run, report.parameters
    config = run.config
    data, training, tokenizer = config.data, config.training, config.data.tokenizer
    of = "" if run.step >= training.steps else f" of {training.steps:,}"
    return {
        "method": config.method.name,
        "network": config.backbone.name,
        "schedule": config.schedule.name,
        "parameters": f"{size.total:,}",
        "of them non-embedding": f"{size.non_embedding:,}",
        "data": data.trained_on,
        "validation text": data.valid or f"{data.holdout:g} of the data",
        "tokenizer": f"{tokenizer.kind} {tokenizer.path or tokenizer.size}",
        "row length": str(data.length),
        "rows in a batch": str(training.batch),
        "steps": f"{run.step:,}{of}",
        "tokens": f"{run.tokens:,}",
        "time": clock(run.seconds),
        "tokens per second": f"{run.tokens / run.seconds:,.0f}" if run.seconds else "–",
    }


def _curves(reports: Sequence[RunReport]) -> Section:
    runs = [report.run for report in reports]
    rows = []
    for run in runs:
        loss = f"{run.losses[-1][1]:.4f}" if run.losses else "–"
        weight = getattr(run.config.method.config, "loss_weight", "elbo")
        weight += " with a teacher" if run.config.teacher else ""
        loss += f" (weight {weight})" if run.losses and weight != "elbo" else ""
        best = min(run.validations, key=lambda found: found[1], default=None)
        text = signed(_certificate(run), with_error(best[1], best[2])) if best else "–"
        rows.append([run.name, loss, text, _at(best and best[0])])
    columns = ["run", "last training loss", "best validation", "at step"]
    names = ", ".join(run.name for run in runs)
    picture = Picture(
        "Training loss (lines, smoothed) and validation bound (marks)",
        f"Nats per token against training steps for {names}: "
        + "; ".join(
            f"{row[0]} ends at {row[1]} with a best validation of {row[2]}" for row in rows
        ),
        partial(pictures.loss_curves, runs),
    )
    note = "From the logs of the runs, in nats per token; ± is one standard error."
    return Section("Loss curves", note, [Table("Loss", columns, rows)], [picture])


def _bounds(reports: Sequence[RunReport]) -> Section:
    columns = ["run", "bits / byte", "perplexity", "nats / token", "T", "tokens", "draws"]
    rows = []
    for report in reports:
        point = report.bound
        if point is not None:
            nats = signed(point.certificate, with_error(point.nats, point.error, point.freedom))
            byte = with_error(point.bits_per_byte, point.bits_per_byte_error, point.freedom)
            byte = f"≈ {byte}" if point.text_estimated else signed(point.certificate, byte)
            steps = "" if point.certificate == "exact" else _steps(point.steps)
            figures = [byte, perplexity(point), nats, steps, f"{point.tokens:,}", str(point.draws)]
            rows.append([report.run.name, *figures])
    note = _or_none(
        rows,
        "Exported weights on validation text: ≤ marks an upper bound, and ± is one standard error of the "
        "noise (? with too few draws). The numbers are those of 'unmask evaluate RUN', unless --rows, --draws "
        "or --seed differ. Compare models with different tokenizers by bits per byte only. "
        "Models with different validation text are not comparable.",
        "a validated checkpoint",
    )
    return Section("Bound", note, [Table("Final bound", columns, rows)] if rows else [])


def _by_steps(reports: Sequence[RunReport]) -> Section:
    curves = {report.run.name: report.by_steps for report in reports if report.by_steps}
    steps = {point.steps for curve in curves.values() for point in curve}
    rows = []
    for T in sorted(steps, key=lambda T: T or math.inf):
        found = [
            next((perplexity(point) for point in curve if point.steps == T), "–")
            for curve in curves.values()
        ]
        rows.append([_steps(T), *found])
    note = _or_none(
        curves,
        "The bound of a model that samples in T steps; continuous time is its limit. With the exact "
        "posterior, and in the paper, it falls with T. The bound of a weak network may rise."
        + _fewer_rows(reports),
        "an MDLM in continuous time",
    )
    if not curves:
        return Section("Bound by T", note)
    ends = "; ".join(
        f"{name} from {perplexity(curve[0])} at T = {_steps(curve[0].steps)} to "
        f"{perplexity(curve[-1])} at T = {_steps(curve[-1].steps)}"
        for name, curve in curves.items()
    )
    picture = Picture(
        "Perplexity against the number of steps of the bound",
        f"Perplexity against T: {ends}",
        partial(pictures.bound_by_steps, curves),
    )
    table = Table("Perplexity by T", ["T", *curves], rows)
    return Section("Bound by T", note, [table], [picture])


def _fewer_rows(reports: Sequence[RunReport]) -> str:
    """A sentence about the rows of a curve, if they are fewer than those of the bound."""
    fewer = any(
        report.bound and point.tokens < report.bound.tokens
        for report in reports
        for point in report.by_steps
    )
    text = (
        f" These figures are of the first {CURVE_ROWS} rows (--rows), those of 'Bound' of all rows."
    )
    return text if fewer else ""


def _schedules(reports: Sequence[RunReport]) -> Section:
    spreads = {report.run.name: report.schedules for report in reports if report.schedules}
    tables, alts = [], []
    for name, found in spreads.items():
        rows = [
            [
                schedule,
                signed("upper", with_error(spread.nats, spread.error, spread.freedom)),
                with_error(spread.variance, spread.variance_error, spread.variance_freedom),
                f"{spread.samples:,}",
            ]
            for schedule, spread in found.items()
        ]
        columns = ["schedule", "bound, nats / token", "variance, nats²", "samples"]
        tables.append(Table(f"{name}, by schedule", columns, rows))
        alts.append(f"{name}: " + ", ".join(f"{row[0]} {row[2]}" for row in rows))
    note = _or_none(
        spreads,
        "The same network under other schedules: the bound stays the same within its error. The variance "
        "of the loss of one row at one uniform time changes." + _fewer_rows(reports),
        "a diffusion model in continuous time whose network does not read the time",
    )
    if not spreads:
        return Section("Variance by schedule", note)
    picture = Picture(
        "Variance of the training loss under each schedule",
        f"Variance in nats squared, by schedule. {'; '.join(alts)}",
        partial(pictures.variances, spreads),
    )
    return Section("Variance by schedule", note, tables, [picture])


def _frontiers(reports: Sequence[RunReport]) -> Section:
    tables: list[Table] = []
    comparable: dict[object, dict[str, list[Row]]] = {}  # by judge, number and length of texts
    for report in reports:
        for file, rows in report.frontiers.items():
            tables.append(_frontier_table(f"{report.run.name}, {file}", rows))
            name = report.run.name if len(report.frontiers) == 1 else tables[-1].caption
            last = rows[-1]
            key = last.judge_digest or tables[-1].caption, last.n, last.length
            comparable.setdefault(key, {})[name] = rows
    if not tables:
        return Section(
            "Frontier",
            "None: measure one with 'unmask evaluate generation RUN --judge self --out RUN/frontier.jsonl'.",
        )
    every = [row for found in comparable.values() for rows in found.values() for row in rows]
    judges = {str(row.judge or "the model itself or --judge") for row in every}
    note = (
        "Rows of 'unmask evaluate generation --out' in the run folder. Likely text of low entropy is not "
        f"good text. Judge: {'; '.join(sorted(judges))}."
    )
    return Section(
        "Frontier", note, tables, [_frontier_plot(found) for found in comparable.values()]
    )


def _frontier_plot(found: dict[str, list[Row]]) -> Picture:
    """A plot of frontiers with the same judge, number and length of texts."""
    alt = "; ".join(
        f"{name}: {row.setting}: {signed(row.certificate, with_error(row.nats, row.nats_error))} "
        f"at entropy {with_error(row.entropy, row.entropy_error)}"
        for name, rows in found.items()
        for row in rows
    )
    marks = "larger marks are more steps, or a higher temperature where there are no steps"
    return Picture(
        f"Frontier of {', '.join(found)}; {marks}",
        f"Nats per token against entropy. {alt}",
        partial(pictures.frontier, found),
    )


def _frontier_table(name: str, rows: Sequence[Row]) -> Table:
    """The rows of a comparison, without the figures that all of them lack."""
    titles = {
        "entropy": "entropy",
        "bits_per_byte": "bits / byte",
        "mauve": "MAUVE",
        "distinct_2": "distinct-2",
        "repetition": "repeated-4",
    }
    figures = [row.to_dict() for row in rows]
    shown = [name for name in titles if any(each.get(name) is not None for each in figures)]
    cells = [
        [
            str(row.setting),
            "" if row.calls is None else f"{row.calls:.1f}",
            signed(row.certificate, with_error(row.nats, row.nats_error)),
            *(_figure(row, each, name) for name in shown),
            str(row.n),
        ]
        for row, each in zip(rows, figures, strict=True)
    ]
    columns = ["setting", "calls", "nats / token", *(titles[name] for name in shown), "texts"]
    return Table(name, columns, cells)


def _figure(row: Row, figures: dict[str, Any], name: str) -> str:
    """A figure with its standard error, or an empty cell."""
    value, error = figures.get(name), figures.get(f"{name}_error")
    if value is None:
        return ""
    text = with_error(value, math.inf if error is None else error)
    return signed(row.certificate, text) if name in JUDGED else text


def _samples(reports: Sequence[RunReport]) -> Section:
    texts = [(report.run.name, text) for report in reports for text in report.samples]
    note = "The last samples of each run, unselected." if texts else "None."
    return Section("Samples", note, texts=texts)


def _or_none(found: object, note: str, needs: str) -> str:
    """The note, or the conditions under which the section would have content."""
    return note if found else f"None: it needs {needs}, and a measurement (without --no-measure)."


def _certificate(run: Run) -> str:
    """The certificate of a run's validation bound."""
    return METHODS[run.config.method.name].certificate


def _steps(steps: int) -> str:
    return str(steps) if steps else "∞"


def _at(step: int | None) -> str:
    return "–" if step is None else f"{step:,}"
