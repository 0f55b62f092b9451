"""The plot of a comparison of samplers: quality against network calls, seconds and diversity."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.evaluation.suites.sample_rows import Row

# Colours for colour-blind readers (Okabe and Ito, and Paul Tol's "muted"); markers differ as well.
_COLOURS = (
    "#0072B2", "#D55E00", "#117733", "#CC79A7", "#E69F00", "#56B4E9",
    "#882255", "#44AA99", "#332288", "#999933", "#AA4499", "#222222",
)  # fmt: skip
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_GREY = "#555555"


@dataclass(frozen=True)
class Line:
    """A line of the plot, which connects rows of one sampler.

    They share a temperature and differ in steps. For a sampler without steps,
    they differ in temperature.
    """

    sampler: str
    rows: list[Row]
    style: dict[str, Any]
    first: bool  # True for the first line of its sampler, which is labelled

    @property
    def spans_temperatures(self) -> bool:
        """True if the line connects several temperatures."""
        return len({row.temperature for row in self.rows}) > 1

    def draw(self, axes: Any, across: str) -> None:
        """Plots nats per token (y) against the row field named `across` (x), with error bars."""
        x = [getattr(row, across) for row in self.rows]
        y = [row.nats for row in self.rows]
        bars: dict[str, Any] = {"yerr": _bars([row.nats_error for row in self.rows])}
        if across == "entropy":
            bars["xerr"] = _bars([row.entropy_error for row in self.rows])
        drawn = axes.errorbar(x, y, **bars, **self.style, elinewidth=1, capsize=0)
        for bar in drawn[2]:
            bar.set_alpha(0.5)


def draw(rows: Sequence[Row], file: Path) -> None:
    """Writes a plot of three panels with the judge's nats per token on the y axis.

    A dashed line marks the nats of real text.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.8), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3, sharey=True)
    real = next((row for row in rows if row.calls is None), None)
    lines = _lines([row for row in rows if row.calls is not None])
    for axes, across in zip(panels, ("calls", "seconds", "entropy"), strict=True):
        for line in lines:
            line.draw(axes, across)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if real:
            axes.axhline(real.nats, color=_GREY, linewidth=1.1, linestyle=(0, (6, 4)), zorder=1)
    if real:
        _real_text(panels, real)
    _describe(panels, rows)
    _temperatures(panels[2], lines)
    canvas.draw()  # computes the layout, which places the labels
    _label_samplers(panels[0], [line for line in lines if line.first])
    figure.savefig(file, dpi=160)


def _lines(rows: Sequence[Row]) -> list[Line]:
    """Groups rows into lines: a colour and a marker for each sampler,
    a dash style for each temperature.
    """
    samplers = list(dict.fromkeys(row.sampler for row in rows))
    temperatures = list(dict.fromkeys(row.temperature for row in rows))
    groups: dict[tuple[str, float | None], list[Row]] = {}
    for row in rows:
        # a sampler without steps has one row per temperature; these rows form its line
        temperature = row.temperature if row.steps is not None else None
        groups.setdefault((row.sampler, temperature), []).append(row)
    lines: list[Line] = []
    for (sampler, temperature), own in groups.items():
        number = samplers.index(sampler)
        dash = 0 if temperature is None else temperatures.index(temperature)
        style = {
            "color": _COLOURS[number % len(_COLOURS)],
            "marker": _MARKS[number % len(_MARKS)],
            "linestyle": _DASHES[dash % len(_DASHES)],
            "linewidth": 1.6,
            "markersize": 6,
            "markeredgecolor": "white",
            "markeredgewidth": 0.7,
        }
        own.sort(key=lambda row: (row.steps or 0, row.temperature or 0))
        first = all(line.sampler != sampler for line in lines)
        lines.append(Line(sampler, own, style, first))
    return lines


def _describe(panels: Any, rows: Sequence[Row]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    calls, seconds, entropy = panels
    bound = ", upper bound" if any(row.certificate == "upper" for row in rows) else ""
    names = {row.judge for row in rows if row.judge}
    judge = _short(names.pop()) if len(names) == 1 else "the judge"
    calls.set_ylabel(f"nats per token by {judge}{bound}\n← likelier")
    for axes, title, label in (
        (calls, "Quality against network calls", "network calls per text"),
        (seconds, "Quality against time", "seconds per text"),
    ):
        axes.set(title=title, xlabel=label, xscale="log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    entropy.set(title="Quality against diversity", xlabel="token entropy of a text, nats")
    _perplexities(entropy)
    for axes in panels:
        axes.title.set(fontsize=11, fontweight="bold")


def _short(judge: str) -> str:
    """The judge's name without prefix, context and hash."""
    return judge.partition(" after ")[0].partition(",")[0]


def _perplexities(axes: Any) -> None:
    """Adds an axis of perplexities at the right."""
    from math import exp, log

    low, high = axes.get_ylim()
    ticks = [exp(low + (high - low) * share / 5) for share in range(6)]
    ticks = [float(f"{tick:.2g}") for tick in ticks]
    right = axes.secondary_yaxis("right")
    right.set_yticks([log(tick) for tick in ticks], [f"{tick:g}" for tick in ticks])
    right.set_ylabel("generative perplexity", fontsize=9)


def _real_text(panels: Any, real: Row) -> None:
    """Labels the line of real text. A star in the third panel marks its entropy."""
    panels[2].plot(
        real.entropy, real.nats, marker="*", markersize=17, color="#222222",
        markeredgecolor="white", linestyle="none", zorder=5,
    )  # fmt: skip
    for axes in panels:
        axes.annotate(
            "real text" if axes is not panels[2] else "real text ★",
            (0.015, real.nats), xycoords=("axes fraction", "data"), xytext=(0, 3),
            textcoords="offset points", color=_GREY, fontsize=9, va="bottom",
        )  # fmt: skip


def _label_samplers(axes: Any, lines: list[Line]) -> None:
    """Labels each sampler beside the panel, as near to the height of its last point as possible."""
    pixels = axes.get_window_extent().height
    gap = 12.5 / 72 * axes.figure.dpi / pixels  # height of a line of text, as a share of the panel
    ends = [(line, line.rows[-1]) for line in lines]
    inside = axes.transData + axes.transAxes.inverted()
    wanted = [inside.transform((row.calls, row.nats))[1] for _, row in ends]
    for (line, row), height in zip(ends, spread_out(wanted, gap), strict=True):
        colour = line.style["color"]
        axes.annotate(
            line.sampler, (row.calls, row.nats), xytext=(1.04, height), textcoords="axes fraction",
            color=colour, fontsize=9.5, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "alpha": 0.45, "linewidth": 0.8,
                        "shrinkA": 1, "shrinkB": 4, "relpos": (0, 0.5)},
        )  # fmt: skip


def spread_out(wanted: Sequence[float], gap: float) -> list[float]:
    """Positions in [0, 1] close to the wanted ones, at least `gap` apart if there is room."""
    gap = min(gap, 1 / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    rising = [wanted[index] for index in order]
    upwards = _pushed(rising, gap)
    downwards = [1 - y for y in _pushed([1 - y for y in rising[::-1]], gap)[::-1]]
    between = [(up + down) / 2 for up, down in zip(upwards, downwards, strict=True)]
    return [y for _, y in sorted(zip(order, between, strict=True))]


def _pushed(rising: Sequence[float], gap: float) -> list[float]:
    """Moves ascending positions up until they are `gap` apart, then down where they exceed 1."""
    moved: list[float] = []
    for y in rising:
        moved.append(max(y, moved[-1] + gap if moved else 0.0))
    above = 1 + gap
    for index in reversed(range(len(moved))):
        above = moved[index] = min(moved[index], above - gap)
    return moved


def _temperatures(axes: Any, lines: list[Line]) -> None:
    """Adds a legend of dash styles if there are several temperatures.

    On a line that connects temperatures, each point is labelled instead.
    """
    from matplotlib.lines import Line2D

    for line in lines:
        if line.spans_temperatures:
            for row in line.rows:
                axes.annotate(
                    f"T={row.temperature:g}", (row.entropy, row.nats), xytext=(5, -9),
                    textcoords="offset points", color=line.style["color"], fontsize=8,
                )  # fmt: skip
    by_dash = {
        line.rows[0].temperature: line.style["linestyle"]
        for line in lines
        if not line.spans_temperatures
    }
    if len(by_dash) > 1:
        handles = [
            Line2D([], [], color=_GREY, linestyle=dash, label=f"temperature {temperature:g}")
            for temperature, dash in by_dash.items()
        ]
        axes.legend(handles=handles, frameon=False, fontsize=9, handlelength=3)


def _bars(errors: list[float]) -> list[float]:
    """Lengths of error bars; 0 for an unknown error."""
    return [error if error < float("inf") else 0.0 for error in errors]
