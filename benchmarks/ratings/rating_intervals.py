"""Coverage of the intervals of `unmask rate --report`: simulated raters with a known preference.

    python benchmarks/ratings rating_intervals --studies 200

A study compares two models on some prompts. Of each prompt the first text is better with a probability of its own,
0.65 on average. Each rater votes by that probability, or a tie in one of five votes. So the true win rate is 0.62. A
95% interval should contain it in 95 of 100 studies.
"""

import argparse
import math
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.room import script_parser
from benchmarks.rows import Report
from unmask.evaluation.metrics.bootstrap import mean, share
from unmask.extensions.ratings.comparisons import compare_texts
from unmask.extensions.ratings.rating_file import RatingFile
from unmask.extensions.ratings.rating_report import RatingReport, rating_report

SETTINGS = ((20, 1), (40, 3), (100, 1))  # prompts and raters
BETA, TIE = (3.25, 1.75), 0.2
TRUE = (1 - TIE) * BETA[0] / sum(BETA) + TIE / 2


def study(prompts: int, raters: int, seed: int) -> RatingReport:
    """The report of one simulated study."""
    draw = random.Random(seed)
    texts = {name: [f"{name} {number}" for number in range(prompts)] for name in ("a", "b")}
    comparisons = compare_texts(texts, [f"prompt {number}" for number in range(prompts)])
    better = {one.texts[0]: draw.betavariate(*BETA) for one in comparisons}
    with tempfile.TemporaryDirectory() as folder:
        file = RatingFile.create(Path(folder, "votes.jsonl"), {}, comparisons)
        for rater in map(str, range(raters)):
            while shown := file.next(rater):
                first = shown.left.startswith("a")  # the page swaps the texts of some comparisons
                wins = draw.random() < better[shown.left if first else shown.right]
                choice = 0 if draw.random() < TIE else (1 if wins == first else 2)
                file.vote(rater, shown.id, choice)
        return rating_report([file], least_checks=0)


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The coverage and the mean width of both intervals in each setting."""
    score = math.log(TRUE / (1 - TRUE)) / 2  # of two models, whose mean is 0
    for prompts, raters in SETTINGS:
        rate_hits, score_hits, widths = [], [], []
        for seed in range(args.studies):
            report = study(prompts, raters, seed)
            rate, own = report.win_rates[0].rate, report.scores["a"]
            rate_hits.append(rate.low <= TRUE <= rate.high)
            score_hits.append(own.low <= score <= own.high)
            widths.append(rate.high - rate.low)
        row = {"row": f"{prompts}/{raters}", "prompts": prompts, "raters": raters}
        row |= {"studies": args.studies, "width": mean(widths).value}
        for name, hits in (("win rate", rate_hits), ("score", score_hits)):
            figure = share(hits)
            row |= {name: figure.value, f"{name}, low": figure.low, f"{name}, high": figure.high}
        yield row


def main() -> None:
    parser = script_parser(__doc__, "out")
    parser.add_argument("--studies", type=int, default=200, help="simulated studies of a setting")
    args = parser.parse_args()
    report = Report(args.out)
    for row in rows(args):
        report.write(row)
