"""BLEU of conditional generation, by sacrebleu: one tokenisation and one signature for everybody."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unmask.errors import UnmaskError
from unmask.imports import extra
from unmask.likelihood.bound import FEWEST

RESAMPLES = 1000
ORDER = 4  # words, in the longest runs that BLEU counts


@dataclass(frozen=True)
class Bleu:
    """A score in 0..100 with its 95% bootstrap interval over texts, and sacrebleu's signature of it.

    Few texts do not tell how far others would be from them: the ends of their interval are None.
    """

    score: float
    low: float | None
    high: float | None
    texts: int
    signature: str

    def to_dict(self) -> dict[str, Any]:
        """All figures, for a log."""
        return asdict(self)

    def __str__(self) -> str:
        return f"BLEU {self.score:.2f} {self.interval}"

    @property
    def interval(self) -> str:
        """In brackets, as a table has it."""
        return "[?, ?]" if self.low is None else f"[{self.low:.2f}, {self.high:.2f}]"


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Bleu:
    """BLEU of each hypothesis against its own references, of which there may be any number.

    The interval is sacrebleu's: half the width of its resamples' percentiles to both sides of their
    mean, with the score in it, cut at 0 and 100, from a fixed seed that the signature names.
    """
    if not hypotheses:
        raise UnmaskError("there is no text to score by BLEU")
    if isinstance(references, str) or any(isinstance(own, str) for own in references):
        raise UnmaskError("BLEU takes a list of references for each text, not one text")
    if len(references) != len(hypotheses):
        raise UnmaskError(
            f"{len(hypotheses)} texts cannot be scored by {len(references)} references"
        )
    if not all(references):
        raise UnmaskError("BLEU needs at least one reference for each text")
    if not defined(references):
        raise UnmaskError(f"BLEU counts runs of {ORDER} words, and no reference has {ORDER}")
    metric = _metric()
    most = max(map(len, references))
    # sacrebleu reads the first reference of every text, then the second, None where there is none
    streams = [
        [own[number] if number < len(own) else None for own in references] for number in range(most)
    ]
    score = metric.corpus_score(list(hypotheses), streams, n_bootstrap=RESAMPLES)
    known = len(hypotheses) > FEWEST
    return Bleu(
        score=_within(score.score),
        low=_within(min(score._mean - score._ci, score.score)) if known else None,
        high=_within(max(score._mean + score._ci, score.score)) if known else None,
        texts=len(hypotheses),
        signature=str(metric.get_signature()),
    )


def defined(references: Sequence[Sequence[str]]) -> bool:
    """Whether a reference has four words: else no run of four can match, and BLEU is 0 or mere smoothing."""
    words = _metric().tokenizer
    return any(len(words(text).split()) >= ORDER for own in references for text in own)


def _metric() -> Any:
    sacrebleu: Any = extra("sacrebleu", "BLEU", "eval")
    return sacrebleu.metrics.BLEU()


def _within(score: float) -> float:
    """No BLEU is below 0 or above 100."""
    return min(max(float(score), 0.0), 100.0)
