"""BLEU and chrF of conditional generation by sacrebleu, with its standard settings."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unmask.errors import UnmaskError
from unmask.imports import extra
from unmask.likelihood.bound import FEWEST

RESAMPLES = 1000
ORDER = 4  # words of the longest n-grams of BLEU


@dataclass(frozen=True)
class Bleu:
    """A score from 0 to 100 with its 95% bootstrap interval over texts and sacrebleu's signature.

    The interval of 3 texts or fewer is unknown, and its ends are None.
    """

    score: float
    low: float | None
    high: float | None
    texts: int
    signature: str

    def to_dict(self) -> dict[str, Any]:
        """All figures as a dictionary."""
        return asdict(self)

    def __str__(self) -> str:
        return f"BLEU {self.score:.2f} {self.interval}"

    @property
    def interval(self) -> str:
        """The interval in brackets, for a table."""
        return "[?, ?]" if self.low is None else f"[{self.low:.2f}, {self.high:.2f}]"


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Bleu:
    """Corpus BLEU of hypotheses, each with one or more references.

    The interval is sacrebleu's. Its centre is the mean score of the resamples. Its width is the
    distance between their 2.5% and 97.5% percentiles. It is widened to hold the score and cut at 0
    and 100. The signature names the seed.
    """
    if not hypotheses:
        raise UnmaskError("there is no text to score by BLEU: give at least one hypothesis")
    if isinstance(references, str) or any(isinstance(own, str) for own in references):
        raise UnmaskError("the references of BLEU are strings: give a list of references per text")
    if len(references) != len(hypotheses):
        raise UnmaskError(
            f"{len(hypotheses)} texts cannot be scored by {len(references)} lists of references: "
            "give one list per text"
        )
    if not all(references):
        raise UnmaskError("a text has no reference for BLEU: give at least one per text")
    if not defined(references):
        raise UnmaskError(
            f"BLEU counts n-grams of {ORDER} words, and no reference has {ORDER}: give longer references"
        )
    metric = _metric()
    score = metric.corpus_score(list(hypotheses), _streams(references), n_bootstrap=RESAMPLES)
    known = len(hypotheses) > FEWEST
    return Bleu(
        score=_within(score.score),
        low=_within(min(score._mean - score._ci, score.score)) if known else None,
        high=_within(max(score._mean + score._ci, score.score)) if known else None,
        texts=len(hypotheses),
        signature=str(metric.get_signature()),
    )


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """chrF of hypotheses, each with one or more references: the F-score of character n-grams.

    Args:
        hypotheses: The texts.
        references: The references of each text.

    Returns:
        A score from 0 to 100.

    Example:
        >>> chrf(["a dog runs"], [["a dog runs"]])
        100.0
    """
    sacrebleu: Any = extra("sacrebleu", "chrF", "eval")
    score = sacrebleu.metrics.CHRF().corpus_score(list(hypotheses), _streams(references))
    return _within(score.score)


def _streams(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """The first references of all texts, then the second ones, as sacrebleu takes them."""
    most = max(map(len, references))
    return [
        [own[number] if number < len(own) else None for own in references] for number in range(most)
    ]


def defined(references: Sequence[Sequence[str]]) -> bool:
    """True if some reference has four words or more;
    otherwise BLEU is 0 or an artefact of smoothing.
    """
    words = _metric().tokenizer
    return any(len(words(text).split()) >= ORDER for own in references for text in own)


def _metric() -> Any:
    sacrebleu: Any = extra("sacrebleu", "BLEU", "eval")
    return sacrebleu.metrics.BLEU()


def _within(score: float) -> float:
    """The score, cut to 0..100."""
    return min(max(float(score), 0.0), 100.0)
