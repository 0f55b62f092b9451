"""Pictures of measurements in one style."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@contextmanager
def picture(
    file: Path,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    dpi: int = 140,
    **options: Any,
) -> Iterator[tuple["Figure", list["Axes"]]]:
    """A figure and its panels, row by row, for the body to draw; then it is written to the file.

    Args:
        file: The picture, such as a PNG; its folder is made.
        size: Width and height in inches.
        rows: Rows of panels.
        columns: Columns of panels.
        dpi: Pixels per inch.
        options: Further options of `Figure.subplots`, such as `sharey`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(rows, columns, squeeze=False, **options).flat) if rows else []
    yield figure, panels
    for axes in figure.axes:
        axes.grid(alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=dpi)
