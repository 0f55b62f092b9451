"""Plot of a run's loss curve."""

from pathlib import Path
from typing import Any

from unmask.files.jsonl import JsonLines


def draw_curve(run: Path) -> Path | None:
    """Reads log.jsonl and plots the training loss and the validation bound as loss.png.

    Returns the path of loss.png, or None if matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    records = JsonLines(run / "log.jsonl").read()
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _training(axes, [record for record in records if "loss" in record])
    _validation(axes, [record for record in records if "validation" in record])
    axes.set(xlabel="step", ylabel="nats per token", title=run.resolve().name)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.has_data():
        axes.legend(frameon=False)
    figure.savefig(run / "loss.png", dpi=150)
    return run / "loss.png"


def smooth(values: list[float]) -> list[float]:
    """Exponential moving average with a window of a twentieth of the curve.

    The first values are plain means of the values so far.
    """
    window = max(1, len(values) // 20)
    level, smoothed = 0.0, []
    for index, value in enumerate(values):
        level += (value - level) / min(index + 1, window)
        smoothed.append(level)
    return smoothed


def _training(axes: Any, records: list[dict[str, Any]]) -> None:
    if not records:
        return
    steps, losses = [r["step"] for r in records], [r["loss"] for r in records]
    axes.plot(steps, losses, color="tab:blue", alpha=0.2, linewidth=1)
    weight = records[-1].get("loss_weight", "")
    label = f"training loss, weight {weight}" if weight else "training loss"
    axes.plot(steps, smooth(losses), color="tab:blue", linewidth=1.5, label=label)


def _validation(axes: Any, records: list[dict[str, Any]]) -> None:
    if not records:
        return
    nats = [r["validation"]["nats"] for r in records]
    errors = [r["validation"]["error"] for r in records]
    steps = [r["step"] for r in records]
    axes.errorbar(
        steps, nats, errors, color="tab:red", marker="o", markersize=4, capsize=2,
        label="validation bound",
    )  # fmt: skip
