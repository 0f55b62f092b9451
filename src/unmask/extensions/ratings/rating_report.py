"""The report of votes: win rates, Bradley–Terry scores, and agreement between raters."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.errors import UnmaskError
from unmask.evaluation.metrics.bootstrap import Figure, percentile, resamples, share
from unmask.extensions.ratings.comparisons import REAL, Comparison
from unmask.extensions.ratings.preferences import bradley_terry, krippendorff_alpha
from unmask.extensions.ratings.rating_file import RatingFile, Vote

LEAST_CHECKS = 0.8  # share of attention checks that a rater must pass


@dataclass(frozen=True)
class WinRate:
    """The win rate of the first model; a tie is half a win,
    and a comparison of several raters has their mean.
    """

    names: tuple[str, str]
    rate: Figure  # with Wilson's interval over comparisons
    wins: int
    ties: int
    losses: int
    comparisons: int


@dataclass(frozen=True)
class Rater:
    """The votes of one rater; `used` is False if too many attention checks failed."""

    name: str
    votes: int
    checks: int
    passed: int
    used: bool


@dataclass(frozen=True)
class RatingReport:
    """Win rates of each pair of models, scores of each model, raters, and their agreement."""

    win_rates: list[WinRate]
    scores: dict[str, Figure]  # Bradley–Terry; only differences matter, the mean is 0
    raters: list[Rater]
    agreement: Figure | None  # Krippendorff's alpha; None without comparisons of two raters
    shared: int  # comparisons of two raters or more


def rating_report(
    files: Sequence[RatingFile], least_checks: float = LEAST_CHECKS, seed: int = 0
) -> RatingReport:
    """The report of all votes in some files.

    A rater who passes a smaller share of the attention checks than `least_checks` is left out.

    Args:
        files: files of ratings. The same comparison in two files is one comparison.
        least_checks: the share of attention checks that a rater must pass.
        seed: the seed of the bootstrap.

    Returns:
        The report.

    Example:
        >>> rating_report([RatingFile.read(Path("ratings.jsonl"))]).raters  # doctest: +SKIP
    """
    if not 0 <= least_checks <= 1:
        raise UnmaskError(f"least_checks must lie in [0, 1], not {least_checks}")
    comparisons = {id: one for file in files for id, one in file.comparisons.items()}
    votes = {key: vote for file in files for key, vote in file.votes.items()}
    if not votes:
        names = ", ".join(str(file.path) for file in files)
        raise UnmaskError(f"{names} holds no votes: rate some texts first")
    raters = _raters(comparisons, list(votes.values()), least_checks)
    used = {rater.name for rater in raters if rater.used}
    by_comparison: dict[str, list[Vote]] = defaultdict(list)
    for vote in votes.values():
        if vote.rater in used and not comparisons[vote.comparison].check:
            by_comparison[vote.comparison].append(vote)
    if not by_comparison:
        raise UnmaskError(
            "no votes are left: every rater failed too many attention checks, or has rated nothing else; "
            "collect more votes, or give a smaller --least-checks"
        )
    judged = [(comparisons[id], found) for id, found in sorted(by_comparison.items())]
    labels = [[vote.winner for vote in found] for _, found in judged]
    return RatingReport(
        _win_rates(judged),
        _scores(judged, seed),
        raters,
        _agreement(labels, seed),
        sum(len(found) > 1 for found in labels),
    )


Judged = Sequence[tuple[Comparison, list[Vote]]]


def _raters(
    comparisons: Mapping[str, Comparison], votes: Sequence[Vote], least: float
) -> list[Rater]:
    found = []
    for name in sorted({vote.rater for vote in votes}):
        own = [vote for vote in votes if vote.rater == name]
        checks = [vote.winner == REAL for vote in own if comparisons[vote.comparison].check]
        used = sum(checks) >= least * len(checks)
        found.append(Rater(name, len(own) - len(checks), len(checks), sum(checks), used))
    return found


def _score(comparison: Comparison, votes: Sequence[Vote]) -> float:
    """The mean win of the first model over raters; a tie is half a win."""
    wins = {comparison.names[0]: 1.0, None: 0.5}
    return sum(wins.get(vote.winner, 0.0) for vote in votes) / len(votes)


def _win_rates(judged: Judged) -> list[WinRate]:
    """The win rate of each pair. A score in [0, 1] varies no more than a coin of its mean.

    Wilson's interval over comparisons is therefore valid with ties and with several raters.
    """
    pairs: dict[tuple[str, str], list[tuple[float, Counter[str | None]]]] = defaultdict(list)
    for one, votes in judged:
        pairs[one.names].append((_score(one, votes), Counter(vote.winner for vote in votes)))
    rates = []
    for names, found in pairs.items():
        counts = sum((count for _, count in found), Counter())
        outcomes = counts[names[0]], counts[None], counts[names[1]]
        rates.append(
            WinRate(names, share([score for score, _ in found]), *outcomes, comparisons=len(found))
        )
    return rates


def _scores(judged: Judged, seed: int) -> dict[str, Figure]:
    """Bradley–Terry scores with the bootstrap over prompts,
    since comparisons of a prompt share texts.
    """
    names = list(dict.fromkeys(name for one, _ in judged for name in one.names))
    prompts = {key: i for i, key in enumerate(dict.fromkeys(_prompt(one) for one, _ in judged))}
    wins = np.zeros((len(prompts), len(names), len(names)))
    for one, votes in judged:
        a, b = (names.index(name) for name in one.names)
        score = _score(one, votes)
        wins[prompts[_prompt(one)], a, b] += score
        wins[prompts[_prompt(one)], b, a] += 1 - score
    flat = wins.reshape(len(prompts), -1)
    fits = [bradley_terry(wins.sum(0))[None]]
    for rows in resamples(len(prompts), seed):
        counts = np.stack([np.bincount(row, minlength=len(prompts)) for row in rows])
        fits.append(bradley_terry((counts @ flat).reshape(-1, len(names), len(names))))
    scores = np.concatenate(fits)  # [1 + resamples, models]
    return {name: percentile(float(scores[0, i]), scores[1:, i]) for i, name in enumerate(names)}


def _prompt(comparison: Comparison) -> tuple[int, str]:
    return comparison.number, comparison.prompt


def _agreement(labels: Sequence[Sequence[str | None]], seed: int) -> Figure | None:
    value = krippendorff_alpha(labels)
    if value is None:
        return None

    alphas = [
        krippendorff_alpha([labels[i] for i in row])
        for rows in resamples(len(labels), seed)
        for row in rows
    ]
    return percentile(value, np.array([np.nan if one is None else one for one in alphas]))
