"""Total variation distance of every sampler from the true distribution of an enumerated toy language.

The language has 4 tokens, 4 positions and a probability for each of its 256 texts. Its positions are dependent. The
denoiser is exact, so all error is the sampler's. Prints one JSON line for each sampler and number of steps, then a
table. The floor is the distance of as many exact draws.
"""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "laws"))

from kit import Language, Scores, distance

from benchmarks.room import script_parser
from benchmarks.rows import markdown
from unmask.diffusion.schedule import LogLinear
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler

STEPS = (1, 2, 4, 8, 16, 32, 64, 128)
MANNERS: dict[str, list[dict[str, Any]]] = {
    "confidence": [{}, {"noise": 1.0}, {"drawn": True}, {"drawn": True, "noise": 1.0}],
    "entropy": [{}, {"noise": 1.0}],
    "margin": [{}, {"noise": 1.0}],
    "entropy_bound": [{"gamma": 0.0}, {}, {"gamma": 1.0}, {"gamma": 1.0, "noise": 1.0}],
    "threshold": [{"threshold": 1.0}, {}, {"threshold": 0.5}, {"threshold": 0.5, "noise": 1.0}],
    "remask": [
        *({"rule": rule} for rule in ("cap", "rescale", "conf", "loop")),
        {"rule": "cap", "eta": 0.1},
    ],
    "predictor_corrector": [{}, {"correctors": 3}, {"spread": True}],
    "semi_autoregressive": [{"window": 4}],  # a single window
}


@dataclass(frozen=True)
class Point:
    """The result of one sampler with one number of steps."""

    sampler: str
    steps: int | None  # None: the sampler has no such setting
    distance: float
    calls: float  # network calls per row, on average
    rows: int
    seconds: float


def title(name: str, settings: dict[str, Any]) -> str:
    """A sampler with its settings."""
    return ", ".join([name, *(f"{key} {value}" for key, value in settings.items())])


def with_steps(name: str, settings: dict[str, Any], steps: int) -> Sampler | None:
    """The sampler with a number of steps; None if it has no such setting."""
    if name == "semi_autoregressive":
        return SAMPLERS.build(name, **settings, inner=Ancestral(steps))
    if name == "gibbs":  # fills in one step, then redraws `steps` positions
        return SAMPLERS.build(name, steps=steps, inner=Ancestral(1))
    names = {field.name for field in fields(SAMPLERS[name])}  # type: ignore[arg-type]
    return SAMPLERS.build(name, **settings, steps=steps) if "steps" in names else None


def measure(language: Language, name: str, sampler: Sampler, steps: int | None, rows: int) -> Point:
    """Total variation distance of `rows` texts from the language."""
    start = time.perf_counter()
    canvas = Canvas(torch.full((rows, language.length), language.size), language.size)
    schedule = LogLinear()
    plan = SamplingTask(list(range(rows)), schedule)
    frame = last_frame(sampler.generate(Scores(language, schedule), canvas, plan), canvas)
    found = counted(language, language.index(frame.tokens, language.size))
    return Point(
        name,
        steps,
        round(distance(found, language.table), 4),
        round(float(frame.calls.double().mean()), 2),
        rows,
        round(time.perf_counter() - start, 1),
    )


def counted(language: Language, index: torch.Tensor) -> torch.Tensor:
    """The share of each text among the draws."""
    return torch.bincount(index, minlength=len(language.table)).double() / len(index)


def floor(language: Language, rows: int) -> Point:
    """The distance of as many exact draws, averaged over ten tries."""
    generator = torch.Generator().manual_seed(0)
    tries = [
        distance(counted(language, drawn), language.table)
        for drawn in torch.multinomial(
            language.table.expand(10, -1), rows, True, generator=generator
        )
    ]
    return Point("perfect draws", None, round(sum(tries) / len(tries), 4), 0.0, rows, 0.0)


def points(language: Language, names: list[str], steps: list[int], rows: int) -> Iterator[Point]:
    """Measures all samplers with all their settings."""
    yield floor(language, rows)
    for name in names:
        for settings in MANNERS.get(name, [{}]):
            called = title(name, settings)
            if with_steps(name, settings, steps[0]) is None:
                yield measure(language, called, SAMPLERS.build(name, **settings), None, rows)
                continue
            for count in steps:
                sampler = with_steps(name, settings, count)
                yield measure(language, called, sampler, count, rows)


def table(found: list[Point], steps: list[int]) -> str:
    """Rows of samplers, columns of steps; a sampler without steps has its calls beside its distance."""
    lines = []
    for name in dict.fromkeys(point.sampler for point in found):
        mine = {point.steps: point for point in found if point.sampler == name}
        if None in mine:
            one = mine[None]
            calls = f" ({one.calls:.1f} calls)" if one.calls else ""
            cells = [f"{one.distance:.3f}{calls}", *[""] * (len(steps) - 1)]
        else:
            cells = [f"{mine[count].distance:.3f}" for count in steps]
        lines.append([name, *cells])
    return "\n".join(markdown(["sampler", *map(str, steps)], lines))


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--rows", type=int, default=10_000, help="texts of each sampler")
    add("--steps", type=int, nargs="+", default=STEPS)
    add("--samplers", nargs="+", choices=list(SAMPLERS), default=list(SAMPLERS))
    args = parser.parse_args()
    language = Language.random(size=4, length=4)
    found = []
    for point in points(language, args.samplers, list(args.steps), args.rows):
        found.append(point)
        print(json.dumps(vars(point)), flush=True)
    print(f"\n{table(found, list(args.steps))}")
