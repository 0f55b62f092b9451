"""Draws the runs of curve.py: the loss with every optimisation on and off, and the difference of the two."""

from pathlib import Path

import numpy as np

from benchmarks.learning.curve import FIRST, read_runs
from benchmarks.pictures import picture
from benchmarks.room import script_parser

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "curves.png"
SMOOTH = 25  # steps that a point of the drawn curve averages
SPACING = 2**-23  # relative spacing of float32


def draw(folder: Path, file: Path) -> None:
    """Draws both curves, and their difference beside the effect of bf16 alone."""
    losses, bounds = read_runs(folder)
    with picture(file, (10, 4.2), 1, 2, width_ratios=[1.2, 1]) as (_, (left, right)):
        seeds = range(len(bounds) // 2)
        for form, colour, style in [("off", "#d55e00", "-"), ("on", "#0072b2", (0, (3, 2)))]:
            curves = np.array([losses[f"{form}-{seed}"] for seed in seeds])
            reach = min(SMOOTH, curves.shape[1])
            mean = np.mean([bounds[f"{form}-{seed}"]["nats"] for seed in seeds])
            for seed, curve in enumerate(curves):
                level = np.convolve(curve, np.ones(reach) / reach, "valid")
                label = (
                    None if seed else f"{form}: validation ≤ {mean:.4f}, mean of {len(seeds)} seeds"
                )
                place = np.arange(len(level)) + reach / 2
                left.plot(place, level, color=colour, ls=style, linewidth=0.9, label=label)
        left.set(xlabel="step", ylabel="training loss, nats per token", xlim=(0, None))
        left.legend(frameon=False, title="optimisations", alignment="left")
        for name, colour, label in [
            ("off-bf16-halves", "0.75", "plain, bf16 in two halves"),
            ("off-bf16", "0.5", "plain, bf16"),
            ("on-fp32", "#009e73", "optimisations on, float32"),
            ("on-0", "#0072b2", "optimisations on"),
        ]:
            pairs = zip(losses[name], losses["off-0"], strict=False)
            apart = [max(abs(a / b - 1), SPACING / 2) for a, b in pairs]
            right.plot(range(1, len(apart) + 1), apart, color=colour, linewidth=0.8, label=label)
        right.axvline(FIRST, color="0.35", linewidth=1, linestyle=(0, (1, 2)))
        right.set(
            xscale="log",
            yscale="log",
            xlabel="step",
            ylabel="difference from off, relative; equal: 6e-8",
        )
        right.set_ylim(top=10 * max(right.get_ylim()))  # room for the legend
        right.legend(loc="upper left", fontsize=8.5, frameon=False)


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("runs", type=Path, help="the folder that curve.py wrote")
    add("--picture", type=Path, default=PICTURE)
    args = parser.parse_args()
    draw(args.runs, args.picture)
