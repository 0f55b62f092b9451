"""MDLM against the autoregressive model at four sizes, on the same rows and tokens; schedules, samplers and steps.

    python benchmarks/learning per_step --prepare DATA --text wikipedia.train.txt.xz --vocabulary 4096
    python benchmarks/learning sizes --data DATA --out OUT --plan                # seconds of each row
    python benchmarks/learning sizes --data DATA --out OUT --seconds 400         # everything that is missing
    python benchmarks/learning sizes --out OUT --judge JUDGE                     # scores of the saved texts
    python benchmarks/learning sizes --out OUT --table --plot sizes.png

Results are in OUT/results.jsonl, texts in OUT/texts.jsonl, as in baselines.py. Finished results are not repeated.
The first seed of all rows comes first, then schedules and texts, then further seeds of the smallest and the largest
size.
"""

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.learning.baselines import (
    FIRST_SEED,
    REAL,
    Judged,
    Part,
    Study,
    Workers,
    begin,
    judge,
    judged,
    results,
    scores_of,
    study_parser,
    write_real,
)
from benchmarks.learning.baselines import TINY as TINY_BASELINES
from benchmarks.pictures import picture
from benchmarks.rows import markdown
from unmask.diffusion.schedule import SCHEDULES
from unmask.likelihood.bound import student_quantile

# depth, width, heads
SIZES = {"40M": (10, 576, 9), "1M": (5, 128, 2), "13M": (7, 384, 6), "4M": (5, 256, 4)}
TINY_SIZES = {"40M": (2, 32, 2), "1M": (1, 16, 2), "13M": (1, 32, 2), "4M": (2, 16, 2)}
ENDS = ("1M", "40M")  # sizes with several seeds
STRATEGIES = ("ancestral", "confidence", "margin", "entropy", "predictor_corrector")
FIXED = ("loglinear", "cosine", "cosine_squared", "polynomial", "linear", "geometric")
STANDARD = "schedule-loglinear"
METHODS = {
    "mdlm": {
        "method.loss_weight": "uniform",
        "backbone": "modern_dit",
        "backbone.condition_width": 8,  # the network does not read the time
    },
    "ar": {"method": "autoregressive", "backbone": "modern_causal"},
}


class Row(NamedTuple):
    """A network with its method and its texts."""

    size: str
    settings: dict[str, Any]
    samplers: tuple[str, ...]


ROWS = {
    f"{method}-{size}": Row(size, METHODS[method], samplers)
    for size in SIZES
    for method, samplers in {"mdlm": STRATEGIES, "ar": ("left_to_right",)}.items()
} | {  # each trains the bound itself, whose variance depends on the schedule
    f"schedule-{name}": Row(
        "4M", {**METHODS["mdlm"], "method.loss_weight": "elbo", "schedule": name}, ("ancestral",)
    )
    for name in FIXED
}


class Sizes(Study):
    """Training and measurements of all sizes."""

    def network(self, name: str) -> dict[str, Any]:
        """The fields of the method and the network of a row."""
        row = ROWS[name]
        shape = (TINY_SIZES if self.args.tiny else SIZES)[row.size]
        parts = (f"backbone.{part}" for part in ("depth", "width", "heads"))
        return {**row.settings, **dict(zip(parts, shape, strict=True))}

    def shares(self, name: str) -> tuple[tuple[str, float], ...]:
        """None of these rows has such settings."""
        return ()

    def seeds_of(self, name: str) -> range:
        """The seeds of a row: several for the smallest and the largest size."""
        several = name in [f"{method}-{size}" for method in METHODS for size in ENDS]
        return range(FIRST_SEED, FIRST_SEED + (self.args.seeds if several else 1))

    def steps_of(self, name: str) -> int:
        """All training steps of a row."""
        other = (self.args.seeds - len(self.seeds_of(name))) * self.args.steps
        return super().steps_of(name) - int(other)

    def learn(self, name: str, seed: int) -> None:
        """Trains and measures one seed of a row."""
        if seed in self.seeds_of(name):
            super().learn(name, seed)

    def points(self, name: str) -> Iterator[tuple[str, int | None, int]]:
        """Sampler, steps and length of each set of texts."""
        for sampler in ROWS[name].samplers:
            for steps in [None] if sampler == "left_to_right" else self.args.sampling_steps:
                yield sampler, steps, self.corpus.train.length

    def compare_schedules(self, name: str) -> None:
        """Bound and loss variance of the log-linear schedule's weights under each schedule."""
        if name != STANDARD or self.done("schedules", name):
            return
        from unmask.extensions.report.schedule_variance import variance_by_schedule

        found = variance_by_schedule(
            self.model(name).method,
            Part(self.corpus.valid, 0, self.args.rows),
            {schedule: SCHEDULES.build(schedule) for schedule in FIXED},
            draws=4 * self.args.draws,  # the times of the draws are independent of each other
            batch=self.args.rows_per_pass,
        )
        spreads = {schedule: asdict(spread) for schedule, spread in found.items()}
        self.write("schedules", name, spreads=spreads)


def run(args: argparse.Namespace) -> None:
    """Runs everything that is missing, until the time is up."""
    write_real(args)
    workers = Workers(args)
    workers.first("learn", FIRST_SEED)
    workers.one_by_one("compare_schedules")
    workers.one_by_one("write_texts")
    workers.together("learn", range(FIRST_SEED + 1, FIRST_SEED + args.seeds))
    for executor in workers.executors:
        executor.shutdown()


# Tables and picture


Found = dict[str, dict[int, dict[str, Any]]]  # results of training by row and seed


def trained(out: Path) -> Found:
    """The results of training."""
    found: Found = defaultdict(dict)
    for row in results(out):
        if row["table"] == 1:
            found[row["row"]][row["seed"]] = row
    return found


class Estimate(NamedTuple):
    """A mean over seeds with the half-width of its 95% interval on the same held-out rows."""

    mean: float
    half: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.half:.3f}" if self.half else f"{self.mean:.3f}"


def estimate(values: list[float], noise: float) -> Estimate:
    """The mean of the seeds' values. A single one has the standard error `noise` of its draws."""
    if len(values) == 1:
        return Estimate(values[0], student_quantile(math.inf, 0.95) * noise, 1)
    error = statistics.stdev(values) / math.sqrt(len(values))
    half = student_quantile(len(values) - 1, 0.95) * error
    return Estimate(statistics.fmean(values), half, len(values))


def nats(found: Found, name: str) -> Estimate:
    """The nats per token of a row."""
    rows = list(found[name].values())
    return estimate([row["nats"] for row in rows], rows[0]["error"])


def gaps(found: Found, size: str) -> dict[int, float]:
    """MDLM minus autoregressive, in nats per token, by seed."""
    ours, other = found[f"mdlm-{size}"], found[f"ar-{size}"]
    return {seed: row["nats"] - other[seed]["nats"] for seed, row in ours.items() if seed in other}


def by_size(found: Found) -> list[str]:
    """The sizes of which both methods have a result, the smallest first."""
    sizes = [size for size in SIZES if gaps(found, size)]
    return sorted(sizes, key=lambda size: SIZES[size][0] * SIZES[size][1] ** 2)


def tables(out: Path) -> Iterator[str]:
    """All tables as Markdown."""
    found = trained(out)
    yield from size_table(found)
    yield from schedule_table(found, results(out))
    yield from sampler_table(judged(out), scores_of(out).get(REAL))


def size_table(found: Found) -> Iterator[str]:
    """Nats of both methods at each size, their difference, and its change from end to end."""
    head = ["size", "depth × width", "non-embedding parameters, AR and MDLM", "tokens"]
    head += ["factor of the learning rate, AR and MDLM", "AR, exact nats per token"]
    head, lines = [*head, "MDLM, bound", "MDLM − AR", "seeds"], []
    for size in by_size(found):
        pair = [f"{method}-{size}" for method in ("ar", "mdlm")]
        first = [next(iter(found[name].values())) for name in pair]
        gap = estimate(list(gaps(found, size).values()), first[1]["error"])
        depth, width, _ = SIZES[size]
        cells = [
            size,
            f"{depth} × {width}",
            ", ".join(f"{row['non_embedding']:,}" for row in first),
            f"{first[0]['tokens']:,}",
            ", ".join(f"{row['factor']:g}" for row in first),
            nats(found, pair[0]),
            f"≤ {nats(found, pair[1])}",
            gap,
            gap.seeds,
        ]
        lines.append(cells)
    yield from markdown(head, lines, left=2)
    low, high = (gaps(found, size) for size in ENDS)
    changes = [high[seed] - low[seed] for seed in high if seed in low]
    if changes:
        noise = math.hypot(*(found[f"mdlm-{size}"][FIRST_SEED]["error"] for size in ENDS))
        yield f"\nMDLM − AR at {ENDS[1]} minus that at {ENDS[0]}: {estimate(changes, noise)}, {len(changes)} seeds"


def schedule_table(found: Found, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Each schedule: the bound after training with it; then the same weights under all schedules."""
    measured = [row["spreads"] for row in rows if row["table"] == "schedules"]
    spreads = measured[-1] if measured else {}
    names = [name for name in FIXED if name in spreads or f"schedule-{name}" in found]
    if not names:
        return
    yield ""
    head, lines = (
        ["schedule", "bound after training with it", "bound of the log-linear weights"],
        [],
    )
    for name in names:
        cells = [name, "–", "–", "–"]
        if (row := f"schedule-{name}") in found:
            cells[1] = f"≤ {nats(found, row)}"
        if spread := spreads.get(name):
            half = student_quantile(spread["freedom"], 0.95) * spread["error"]
            wide = student_quantile(spread["variance_freedom"], 0.95) * spread["variance_error"]
            cells[2] = f"≤ {spread['nats']:.3f} ± {half:.3f}"
            cells[3] = f"{spread['variance']:.3g} ± {wide:.2g}"
        lines.append(cells)
    yield from markdown([*head, "their loss variance, nats²"], lines)


def sampler_table(found: list[Judged], real: dict[str, Any] | None) -> Iterator[str]:
    """Perplexity under the judge and entropy of each sampler, number of steps and size."""
    if not found:
        return
    known = {(one.row["row"], one.row["sampler"], one.row["steps"]): one for one in found}
    settings = {(one.row["sampler"], one.row["steps"]) for one in found}
    sizes = sorted(SIZES, key=lambda size: SIZES[size][0] * SIZES[size][1] ** 2)
    yield f"\nPerplexity under {found[0].scores['judge']} with its 95% interval, and entropy\n"
    lines = []
    for sampler, steps in sorted(settings, key=lambda one: (one[0], one[1] or 0)):
        method = "ar" if sampler == "left_to_right" else "mdlm"
        ones = [known.get((f"{method}-{size}", sampler, steps)) for size in sizes]
        calls = [one.row["calls"] for one in ones if one]
        if calls:
            lines.append(
                [sampler, steps or "", f"{statistics.fmean(calls):.0f}", *map(scored, ones)]
            )
    yield from markdown(["sampler", "steps", "calls", *sizes], lines)
    by_schedule = [one for one in found if one.row["row"].startswith("schedule-")]
    if by_schedule:
        steps_of = sorted({one.row["steps"] for one in by_schedule})
        yield ""
        lines = [
            [
                name.removeprefix("schedule-"),
                *(scored(known.get((name, "ancestral", n))) for n in steps_of),
            ]
            for name in dict.fromkeys(one.row["row"] for one in by_schedule)
        ]
        yield from markdown(["schedule, ancestral at 4M", *(f"{n} steps" for n in steps_of)], lines)
    if real:
        yield f"\nReal text: perplexity {real['perplexity']:.1f}, entropy {real['entropy']:.2f}"


def scored(one: Judged | None) -> str:
    """The scores of a set of texts as a cell."""
    if one is None:
        return "–"
    low, high = one.scores["interval"]
    return (
        f"{one.scores['perplexity']:,.0f} ({low:,.0f} to {high:,.0f}), {one.scores['entropy']:.2f}"
    )


def plot(out: Path, file: Path) -> None:
    """Nats against size; perplexity under the judge against network calls at each size."""
    found, texts = trained(out), judged(out)
    sizes = by_size(found)
    size = (4 + 2.6 * len(sizes), 3.8)
    with picture(file, size, 1, 1 + len(sizes)) as (figure, panels):
        shown = {"ar": ("autoregressive, exact", "C5"), "mdlm": ("MDLM, bound", "black")}
        for method, (title, color) in shown.items():
            names = [f"{method}-{size}" for size in sizes]
            x = [next(iter(found[name].values()))["non_embedding"] for name in names]
            y = [nats(found, name) for name in names]
            half = [one.half for one in y]
            style: dict[str, Any] = {"color": color, "marker": "o", "capsize": 3}
            panels[0].errorbar(x, [one.mean for one in y], half, label=title, **style)
        panels[0].set(xscale="log", xlabel="non-embedding parameters", ylabel="nats per token")
        panels[0].legend(frameon=False, loc="center right", fontsize=9)
        for axes in panels[2:]:
            axes.sharey(panels[1])
            axes.tick_params(labelleft=False, which="both")
        for axes, size in zip(panels[1:], sizes, strict=True):
            for number, sampler in enumerate((*STRATEGIES, "left_to_right")):
                method = "ar" if sampler == "left_to_right" else "mdlm"
                points = sorted(
                    (one.row["calls"], one.scores["perplexity"], one.scores["interval"])
                    for one in texts
                    if (one.row["row"], one.row["sampler"]) == (f"{method}-{size}", sampler)
                )
                x, y = [x for x, _, _ in points], [y for _, y, _ in points]
                ends = [
                    [y - low for _, y, (low, _) in points],
                    [high - y for _, y, (_, high) in points],
                ]
                style = {"color": f"C{number}", "marker": "os^Dv*"[number], "capsize": 2}
                title = f"{sampler} (autoregressive)" if method == "ar" else sampler
                axes.errorbar(x, y, ends, label=title, elinewidth=0.8, **style)
            axes.set(title=size, xlabel="network calls", yscale="log")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:.0f}")
        if texts and sizes:
            panels[1].set_ylabel("gen-PPL")
            panels[1].yaxis.set_major_formatter("{x:,.0f}")
            panels[1].yaxis.set_minor_formatter("{x:,.0f}")
            shown = panels[1].get_legend_handles_labels()
            figure.legend(*shown, loc="outside right upper", frameon=False, fontsize=9)


TINY = TINY_BASELINES | {"factors": [1.0], "rows": 4, "sampling_steps": [2]}


def main() -> None:
    options = study_parser(__doc__, ROWS)
    options.set_defaults(out=Path("runs/sizes"), finalists=1, factors=[0.5, 1.0], processes=0)
    options.set_defaults(sampling_steps=[8, 32, 128])
    args = options.parse_args()
    if args.judge:
        judge(args.out, args.judge)
    if args.table:
        print("\n".join(tables(args.out)))
    if args.plot:
        plot(args.out, args.plot)
    if args.judge or args.table or args.plot:
        return
    begin(args, Sizes, ROWS, TINY, run)
