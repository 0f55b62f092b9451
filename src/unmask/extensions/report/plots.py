"""Plots of a report as SVG, with colours for light and dark pages."""

import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unmask.errors import UnmaskError
from unmask.evaluation.suites.sample_rows import Row
from unmask.extensions.report.measurements import Point
from unmask.extensions.report.schedule_variance import Spread
from unmask.imports import install_command
from unmask.likelihood.bound import FEWEST
from unmask.runs.run_folder import Run

# Okabe and Ito's colours and Tol's "muted", each with a lighter one for dark pages. Colour-blind
# readers can distinguish them; the marks differ as well.
_COLOURS = {
    "#0072b2": "#4db2ec", "#d55e00": "#ff9450", "#117733": "#5cc987", "#cc79a7": "#e59cc5",
    "#e69f00": "#f4bc45", "#882255": "#d977ab", "#44aa99": "#6fd3c2", "#332288": "#9a8cf0",
}  # fmt: skip
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<")
_INK, _FAINT = "#1a2b3c", "#a1b2c3"  # placeholders for the text colour and the grid colour
_POINTS = 400  # points of a curve, at most: keeps the page small
_SHORT = 20  # most letters of a run's name before a sampler's name
_TWO, _ONE = 28, 54  # most letters of a name in a legend of two columns, and of one
_WIDTH, _HEIGHT = 5.0, 3.3  # inches; text of this size is readable on a phone


def need_matplotlib() -> None:
    """Raises an error if matplotlib is missing; called before anything is measured."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UnmaskError(
            f"--html needs matplotlib: {install_command('log')}. Without --html there are tables only"
        ) from None


def loss_curves(runs: Sequence[Run]) -> str:
    """Plot of the training loss as lines and the validation bounds as marks with errors."""
    from unmask.training.logs.loss_curve import smooth

    def draw(axes: Any) -> None:
        for run, style in zip(runs, _styles(), strict=False):
            steps, losses = zip(*run.losses, strict=True) if run.losses else ((), ())
            thin = slice(None, None, max(1, len(steps) // _POINTS))
            smoothed = smooth(list(losses))
            (line,) = axes.plot(steps[thin], smoothed[thin], color=style["color"], linewidth=1.2)
            if run.validations:
                at, nats, errors = zip(*run.validations, strict=True)
                marks = {**style, "linestyle": "none"}
                axes.errorbar(at, nats, _bars(errors), **marks, label=run.name)
            else:
                line.set_label(run.name)
        axes.set(xlabel="step", ylabel="nats per token")

    return _svg(draw)


def bound_by_steps(curves: Mapping[str, Sequence[Point]]) -> str:
    """Plot of perplexity against T, evenly spaced, with continuous time at the right end."""
    found = {point.steps for curve in curves.values() for point in curve}
    steps = sorted(found, key=lambda T: T or math.inf)

    def draw(axes: Any) -> None:
        for number, ((name, curve), style) in enumerate(
            zip(curves.items(), _styles(), strict=False)
        ):
            offset = 0.1 * (number - (len(curves) - 1) / 2)  # so that error bars do not overlap
            at = [steps.index(point.steps) + offset for point in curve]
            values = [_finite(point.perplexity) for point in curve]
            known = [
                point.perplexity_error if point.freedom >= FEWEST else math.inf for point in curve
            ]
            axes.errorbar(at, values, _bars(known), **style, label=name)
        labels = [str(T) if T else "∞" for T in steps]
        axes.set_xticks(range(len(steps)), labels)
        axes.set(xlabel="T, steps of the bound", ylabel="perplexity, at most")

    return _svg(draw, legend_below=True)


def variances(spreads: Mapping[str, Mapping[str, Spread]]) -> str:
    """Bar chart of the variance of the training loss under each schedule, with errors."""
    schedules = list(dict.fromkeys(name for found in spreads.values() for name in found))
    share = 0.8 / len(spreads)

    def draw(axes: Any) -> None:
        for number, ((name, found), style) in enumerate(
            zip(spreads.items(), _styles(), strict=False)
        ):
            at = [schedules.index(schedule) + share * (number + 0.5) - 0.4 for schedule in found]
            values = [spread.variance for spread in found.values()]
            errors = _bars([spread.variance_error for spread in found.values()])
            axes.barh(at, values, share, color=style["color"], label=name)
            axes.errorbar(values, at, xerr=errors, color=_INK, linestyle="none", capsize=2)
            for y, value, error in zip(at, values, errors, strict=True):
                axes.annotate(
                    f"{value:.3g}", (value + error, y), xytext=(4, 0), va="center",
                    textcoords="offset points", fontsize=9,
                )  # fmt: skip
        axes.set_yticks(range(len(schedules)), schedules)
        axes.invert_yaxis()
        axes.margins(x=0.14)
        axes.set_xlim(left=0)
        axes.set(xlabel="variance of the training loss of a row, nats²")

    return _svg(draw)


def frontier(found: Mapping[str, Sequence[Row]]) -> str:
    """Plot of the judge's nats per token against entropy.

    Each sampler of a run is a line, and real text is a star.
    """
    prefixes = _prefixes(list(found))
    lines: dict[tuple[str, float | None], list[Row]] = {}
    for name, rows in found.items():
        for row in rows:
            if row.calls is not None:  # a sampler without steps has one line for all temperatures
                temperature = row.temperature if row.steps is not None else None
                lines.setdefault((prefixes[name] + row.sampler, temperature), []).append(row)
    several = len({temperature for _, temperature in lines if temperature is not None}) > 1
    real = {(r.entropy, r.nats) for rows in found.values() for r in rows if r.calls is None}
    upper = any(row.certificate == "upper" for rows in found.values() for row in rows)

    def draw(axes: Any) -> None:
        for ((name, temperature), own), style in zip(lines.items(), _styles(), strict=False):
            shown = several and temperature is not None
            _draw_sampler(
                axes, own, style, f"{name}, temperature {temperature:g}" if shown else name
            )
        if real:
            style = {"color": _INK, "marker": "*", "markersize": 15, "ls": "none"}
            axes.plot(*zip(*sorted(real), strict=True), **style, label="real text")
        bound = ", upper bound" if upper else ""
        axes.set(xlabel="entropy of a text's tokens, nats", ylabel=f"judge's nats per token{bound}")

    return _svg(draw, legend_below=True)


def _prefixes(names: Sequence[str]) -> dict[str, str]:
    """The run's name before its samplers' names: empty for a single run,
    shortened if a name is long.
    """
    if len(names) < 2:
        return dict.fromkeys(names, "")
    long = max(map(len, names)) > _SHORT
    shared = len(os.path.commonprefix(list(names))) if long else 0  # noqa: RUF071  by letter
    return {name: f"{'…' if shared else ''}{_shortened(name[shared:], _SHORT)}: " for name in names}


def _draw_sampler(axes: Any, rows: Sequence[Row], style: dict[str, Any], name: str) -> None:
    """Draws a line whose marks grow with the steps, or with the temperature if there are none."""
    rows = sorted(rows, key=lambda row: (row.steps or 0, row.temperature or 0))
    x, y = [row.entropy for row in rows], [row.nats for row in rows]
    bars = _bars([row.nats_error for row in rows]), _bars([row.entropy_error for row in rows])
    axes.errorbar(x, y, *bars, **style, label=name)
    sizes = [(5.5 + 5 * number / max(len(rows) - 1, 1)) ** 2 for number in range(len(rows))]
    axes.scatter(x, y, sizes, color=style["color"], marker=style["marker"], linewidths=0, zorder=3)


def _styles() -> list[dict[str, Any]]:
    """Colours and marks of the lines of a plot, in order."""
    return [
        {"color": colour, "marker": mark, "markersize": 5.5, "linewidth": 1.4, "elinewidth": 1}
        for colour, mark in zip(_COLOURS, _MARKS, strict=True)
    ] * 4


def _finite(value: float) -> float:
    """A value, or NaN for infinity, which leaves a gap in the line."""
    return value if value < math.inf else math.nan


def _bars(errors: Sequence[float]) -> list[float]:
    """Lengths of error bars; 0 for an unknown error."""
    return [error if error < float("inf") else 0.0 for error in errors]


def _svg(draw: Callable[[Any], None], legend_below: bool = False) -> str:
    """A plot with one panel, as SVG."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings = {"svg.fonttype": "none", "svg.hashsalt": "unmask", "font.size": 11}
    with matplotlib.rc_context({**settings, **dict.fromkeys(inks, _INK)}):
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained", facecolor="none")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot(facecolor="none")
        draw(axes)
        axes.grid(color=_FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        names = axes.get_legend_handles_labels()[1]
        if len(names) > 1:
            below = legend_below or len(names) > 4 or max(map(len, names)) > _TWO
            _legend(figure, axes, names, below)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _themed(out.getvalue())


def _legend(figure: Any, axes: Any, names: Sequence[str], below: bool) -> None:
    """Adds a legend inside the panel or below it.
    The figure is higher by the lines of a legend below.
    """
    if not below:
        axes.legend(frameon=False, fontsize=10)
        return
    columns = 2 if max(map(len, names)) <= _TWO else 1
    figure.set_figheight(_HEIGHT + 0.22 * -(-len(names) // columns))
    figure.legend(
        axes.get_legend_handles_labels()[0], [_shortened(name, _ONE) for name in names],
        loc="outside lower center", ncols=columns, frameon=False, fontsize=9.5,
    )  # fmt: skip


def _shortened(name: str, letters: int) -> str:
    """A name, with an ellipsis in its middle if it is longer than `letters`."""
    half = letters // 2
    return name if len(name) <= letters else f"{name[: half - 1]}…{name[-half:]}"


def _themed(svg: str) -> str:
    """An SVG whose colours are CSS variables, with values for light and for dark pages."""
    light = {"ink": "#222", "faint": "#ddd"}
    dark = {"ink": "#e4e4e4", "faint": "#444"}
    svg = svg.replace(_INK, "var(--ink)").replace(_FAINT, "var(--faint)")
    for number, (colour, lighter) in enumerate(_COLOURS.items()):
        svg = svg.replace(colour, f"var(--c{number})")
        light[f"c{number}"], dark[f"c{number}"] = colour, lighter
    sheet = (
        f"svg{{{_variables(light)}}}"
        f"@media screen and (prefers-color-scheme: dark){{svg{{{_variables(dark)}}}}}"
        "text{font-family:system-ui,'DejaVu Sans',sans-serif!important}"
    )
    start = svg.index("<svg")
    body = svg.index(">", start) + 1
    return f"{svg[start:body]}<style>{sheet}</style>{svg[body:]}"


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())
