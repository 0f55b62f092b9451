"""An evaluation suite: the share of distinct runs of words in texts that a model writes."""

from collections.abc import Iterator
from dataclasses import dataclass

import unmask
from unmask.evaluation.suites import SUITES, Progress, Suite, column
from unmask.options import option


@dataclass(frozen=True)
class Options:
    """Flags of `unmask evaluate word-overlap`."""

    texts: int = option(16, ge=1, help="texts to write")
    words: list[int] = option([1, 2], ge=1, help="words of a run")
    seed: int = option(0, help="the same seed writes the same texts")


@dataclass(frozen=True)
class Row:
    """Runs of one number of words."""

    words: int = column(title="words of a run")
    distinct: float | None = column(format=".1%")
    runs: int = column(shown=False)


@SUITES.register("word-overlap")
class WordOverlap(Suite):
    """Share of distinct runs of words in written texts."""

    Options, Row = Options, Row
    examples = ("stories --texts 64", "runs/demo --words 1,2,3 --json")

    def rows(self, model: unmask.Model, options: Options, progress: Progress) -> Iterator[Row]:
        progress.expect([f"runs of {size}" for size in options.words])
        written = model.generate(n=options.texts, seed=options.seed)
        texts = [result.text.split() for result in written]
        for size in options.words:
            runs = [tuple(t[i : i + size]) for t in texts for i in range(len(t) - size + 1)]
            yield Row(size, len(set(runs)) / len(runs) if runs else None, len(runs))

    def notes(self, rows: list[Row]) -> list[str]:
        return [f"{rows[0].runs} words in all"] if rows[0].words == 1 else []
