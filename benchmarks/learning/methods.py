"""Validation bounds of four methods on the bundled corpus, each within the demo's budget, against a unigram model.

Prints one JSON line for each method and draws their validation curves. An unfinished run is resumed. A finished run is
only measured and drawn.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

import unmask
from benchmarks.pictures import picture
from benchmarks.room import script_parser
from unmask.config.run_config import load_recipe, resolve
from unmask.data.load import load_data
from unmask.likelihood.measured_rows import unigram_nats
from unmask.training.logs.run_log import read_log

RECIPES = {
    "MDLM": "demo",
    "SEDD": "demo-sedd",
    "D3PM": "demo-d3pm",
    "autoregressive": "demo-autoregressive",
}
STYLES = {  # colours for colour-blind readers too, and a marker for print
    "MDLM": ("#0072b2", "o"),
    "SEDD": ("#d55e00", "s"),
    "D3PM": ("#009e73", "^"),
    "autoregressive": ("#cc79a7", "D"),
}
TARGET = 0.25  # nats by which each method must be below a unigram model
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "methods.png"


@dataclass(frozen=True)
class Curve:
    """A method's validation bound over its training."""

    method: str
    steps: list[int]
    nats: list[float]
    seconds: float  # spent in training steps


def train(recipe: str, run: Path, steps: int) -> unmask.Model:
    """The best model of a recipe; with `steps` = 0 the recipe sets the number of steps."""
    settings: list[tuple[str, Any]] = []
    if steps:
        settings = [("steps", steps), ("warmup", steps // 10), ("validate_every", -(-steps // 6))]
    overrides = [(f"training.{name}", str(value)) for name, value in settings]
    return unmask.train(resolve(load_recipe(recipe), overrides), run)


def read_curve(method: str, run: Path) -> Curve:
    """The validation curve in a run's log."""
    records = read_log(run)
    validations = [record for record in records if "validation" in record]
    return Curve(
        method,
        [record["step"] for record in validations],
        [record["validation"]["nats"] for record in validations],
        max(record["seconds"] for record in records if "seconds" in record),
    )


def measure(model: unmask.Model, curve: Curve, unigram: float, draws: int) -> dict[str, Any]:
    """A row of the table."""
    bound = model.perplexity(draws=draws)
    return {
        "method": curve.method,
        "bound": round(bound.nats, 4),
        "error": round(bound.error, 4),
        "unigram": round(unigram, 4),
        "below_unigram_percent": round(100 * (1 - bound.nats / unigram), 1),
        "seconds": round(curve.seconds),
    }


def unigram_of(model: unmask.Model) -> float:
    """Nats per token of the validation text under the training text's token frequencies."""
    data = load_data(model.config.data, model.tokenizer)
    return unigram_nats(data.train, data.valid, model.tokenizer.vocabulary.size)


def draw(curves: Sequence[Curve], unigram: float, file: Path) -> None:
    """All curves in one picture, each named at its end."""
    with picture(file, (8, 4.8), dpi=150) as (_, (axes,)):
        for curve in curves:
            colour, marker = STYLES[curve.method]
            axes.plot(curve.steps, curve.nats, color=colour, marker=marker, markersize=4.5)
        for level, name, style in [
            (unigram, "unigram", (0, (6, 3))),
            ((1 - TARGET) * unigram, f"{TARGET:.0%} below", (0, (1, 2))),
        ]:
            axes.axhline(level, color="0.35", linewidth=1.2, linestyle=style)
            axes.annotate(
                f"{name} {level:.2f}",
                (1, level),
                xycoords=("axes fraction", "data"),
                xytext=(-4, 4),
                ha="right",
                color="0.35",
                **_LABEL,
            )
        axes.set(xlabel="training step", ylabel="validation bound, nats per token")
        axes.set(xlim=(0, None), ylim=(None, 1.15 * unigram))  # higher values are of no interest
        _name_curves(axes, curves)
        axes.set_title("Four methods on Python's documentation", loc="left")


_LABEL = {"textcoords": "offset points", "fontsize": 9}


def _name_curves(axes: Axes, curves: Sequence[Curve]) -> None:
    """Writes names with final values into the right margin, moved apart where curves end close together."""
    low, high = axes.get_ylim()
    gap, place = (high - low) / 22, -float("inf")
    for curve in sorted(curves, key=lambda curve: curve.nats[-1]):
        place = max(curve.nats[-1], place + gap)
        axes.annotate(
            f"{curve.method} {curve.nats[-1]:.2f}",
            (1, place),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            va="center",
            color=STYLES[curve.method][0],
            **_LABEL,
        )


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--runs", type=Path, default=Path("runs/methods"), help="folder of the runs")
    add("--steps", type=int, default=0, help="steps of each run, for a quick try")
    add("--draws", type=int, default=4, help="noise draws of the final bound")
    add("--picture", type=Path, default=PICTURE)
    args = parser.parse_args()
    curves = []
    for method, recipe in RECIPES.items():
        model = train(recipe, args.runs / recipe, args.steps)
        curves.append(read_curve(method, args.runs / recipe))
        unigram = unigram_of(model)
        print(json.dumps(measure(model, curves[-1], unigram, args.draws)), flush=True)
    draw(curves, unigram, args.picture)
