"""Draws the measurements of scaling.py: cost against each axis, with the machine's floor."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.pictures import picture
from benchmarks.room import script_parser
from benchmarks.rows import read_rows

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "scaling.png"
OURS, FLOOR, AUTHORS = "#0072b2", "0.45", "#d55e00"
SIZES = {"tiny": "tiny\n8 × 512", "small": "small\n12 × 768", "medium": "medium\n24 × 1024"}
TITLES = {
    "length": "length L, 65,536 tokens a batch",
    "vocabulary": "vocabulary V",
    "batch": "batch B, rows",
    "size": "model",
    "steps": "steps T, B = 16",
}
Row = dict[str, Any]

# the authors' implementation, as measured: value on the axis -> (tokens a second or seconds, GiB)
AUTHORS_TRAIN = {
    "length": {1024: (161_300, 93.7)},
    "vocabulary": {50_257: (161_300, 93.7)},
    "batch": {32: (152_100, 48.3), 64: (161_300, 93.7)},
    "size": {"small": (161_300, 93.7)},
}
AUTHORS_SAMPLE = {"steps": {200: 0.60, 1000: 3.05}, "batch": {1: 9.56, 16: 3.05}}


def series(rows: Sequence[Row], work: str, axis: str) -> list[Row]:
    """The points along an axis, with the point that all axes share."""
    found = {row["value"]: row for row in rows if (row["work"], row["axis"]) == (work, axis)}
    shared, at = ("length", 1024) if work == "train" else ("steps", 1000)
    base = next((r for r in rows if (r["work"], r["axis"], r["value"]) == (work, shared, at)), None)
    if base:
        value = "small" if axis == "size" else base[axis] if axis != "steps" else at
        found.setdefault(value, base)
    order = list(SIZES).index if axis == "size" else float
    return [found[value] | {"value": value} for value in sorted(found, key=order)]


def line(axes: Axes, points: Sequence[Row], key: str, floor: str = "") -> None:
    """Draws measured values as a line, and the floor as a dashed line."""
    full = [point["value"] for point in points if point.get("out_of_memory")]
    points = [point for point in points if point.get(key)]
    places = [point["value"] for point in points]
    if floor:
        bound = [point[floor] for point in points]
        axes.plot(places, bound, color=FLOOR, linestyle=(0, (4, 2)), linewidth=1.3)
    axes.plot(places, [p[key] for p in points], color=OURS, marker="o", markersize=5)
    for place in full:
        axes.annotate(
            "out of memory",
            (place, 0.04),
            xycoords=("data", "axes fraction"),
            rotation=90,
            ha="center",
            fontsize=8.5,
            color=OURS,
        )


def authors(axes: Axes, measured: dict[Any, float]) -> None:
    """Draws the figures of the authors' implementation where it was measured."""
    axes.plot(list(measured), list(measured.values()), color=AUTHORS, marker="D", linestyle="none")


def dress(axes: Axes, axis: str, places: Sequence[int | str]) -> None:
    """Makes the axes logarithmic, with a tick at each point."""
    if axis == "size":
        axes.set_xticks(range(len(places)), [SIZES[str(place)] for place in places])
        axes.set_xlim(-0.4, len(places) - 0.6)
    else:
        axes.set_xscale("log", base=2)
        axes.set_xticks(*zip(*_ticks([int(place) for place in places]), strict=True))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(TITLES[axis])
    axes.tick_params(labelsize=8.5)
    axes.set_yscale("log")


def _ticks(places: Sequence[int]) -> list[tuple[int, str]]:
    """A tick at each value, with a label unless the next one is too close."""
    after = [*places[1:], 2 * places[-1]]
    return [
        (place, _short(place) if later > 1.6 * place else "")
        for place, later in zip(places, after, strict=True)
    ]


def _short(value: int) -> str:
    if value >= 1024 and value % 1024 == 0:
        return f"{value // 1024}k"
    return f"{value / 1000:.0f}k" if value > 10_000 else str(value)


def draw(rows: Sequence[Row], file: Path) -> None:
    """Draws training in the upper row (speed, then memory) and sampling in the lower row."""
    machine = next(row for row in rows if row["row"] == "machine")
    rows = [row for row in rows if "work" in row and "error" not in row]
    with picture(file, (12.5, 9.6), 0, dpi=130) as (figure, _):
        grid = figure.add_gridspec(3, 4)
        top: list[Axes | None] = [None, None]
        for column, axis in enumerate(AUTHORS_TRAIN):
            points = series(rows, "train", axis)
            for row, (key, floor) in enumerate(
                [("tokens_per_second", "most_tokens_per_second"), ("peak_gib", "")]
            ):
                axes = figure.add_subplot(grid[row, column], sharey=top[row])
                top[row] = top[row] or axes
                line(axes, points, key, floor)
                authors(axes, {at: both[row] for at, both in AUTHORS_TRAIN[axis].items()})
                dress(axes, axis, [point["value"] for point in points])
                if column:
                    axes.tick_params(labelleft=False)
        _name(top[0], "training, tokens a second")
        _name(top[1], "training, peak GiB")
        _sampling(figure, grid, rows)
        _legend(figure)
        figure.align_ylabels()
        figure.suptitle(
            f"How cost grows: 12 × 768 DiT, L = 1024, V = 50,257, B = 64 where not varied\n"
            f"{machine['device']}, bf16, measured matrix rate {machine['matrix_tflops']:.0f} TFLOP/s",
            x=0.01,
            ha="left",
            fontsize=11,
        )


def _sampling(figure: Figure, grid: Any, rows: Sequence[Row]) -> None:
    shared = None
    for half, axis in enumerate(AUTHORS_SAMPLE):
        points = series(rows, "sample", axis)
        axes = figure.add_subplot(grid[2, 2 * half : 2 * half + 2], sharey=shared)
        shared = shared or axes
        line(axes, points, "seconds_per_sequence", "least_seconds_per_sequence")
        authors(axes, AUTHORS_SAMPLE[axis])
        dress(axes, axis, [point["value"] for point in points])
        if axis == "batch":
            axes.set_xlabel("batch B, rows, T = 1000")
            axes.tick_params(labelleft=False)
    _name(shared, "sampling, seconds a sequence")
    if shared:
        shared.yaxis.set_major_locator(LogLocator())


def _name(axes: Axes | None, label: str) -> None:
    """Sets a label, and ticks at 1, 2 and 5 of each power of ten."""
    if axes:
        axes.set_ylabel(label)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _magnitude(value)))


def _magnitude(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def _legend(figure: Figure) -> None:
    axes = figure.axes[0]
    handles = [
        axes.plot([], [], color=OURS, marker="o", label="unmask")[0],
        axes.plot(
            [], [], color=FLOOR, linestyle=(0, (4, 2)), label="floor: operations / matrix rate"
        )[0],
        axes.plot([], [], color=AUTHORS, marker="D", linestyle="none", label="authors' code")[0],
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=3, frameon=False)


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("rows", type=Path, nargs="+", help="files of scaling.py's lines")
    add("--picture", type=Path, default=PICTURE)
    args = parser.parse_args()
    draw(read_rows(*args.rows), args.picture)
