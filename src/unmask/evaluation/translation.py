"""BLEU of conditional generation, by sacrebleu: one tokenisation and one signature for everybody."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unmask.data.extras import extra
from unmask.errors import UnmaskError

RESAMPLES = 1000


@dataclass(frozen=True)
class Bleu:
    """A score in 0..100 with its 95% bootstrap interval over texts, and sacrebleu's signature of it."""

    score: float
    low: float
    high: float
    texts: int
    signature: str

    def to_dict(self) -> dict[str, Any]:
        """All figures, for a log."""
        return asdict(self)

    def __str__(self) -> str:
        return f"BLEU {self.score:.2f} [{self.low:.2f}, {self.high:.2f}]"


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Bleu:
    """BLEU of each hypothesis against its own references, of which there may be any number.

    The interval is sacrebleu's: half the width of its resamples' percentiles to both sides of their
    mean, cut at 0 and 100, from a fixed seed that the signature names.
    """
    sacrebleu: Any = extra("sacrebleu", "BLEU", "eval")
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
    most = max(map(len, references))
    # sacrebleu reads the first reference of every text, then the second, None where there is none
    streams = [
        [own[number] if number < len(own) else None for own in references] for number in range(most)
    ]
    metric = sacrebleu.metrics.BLEU()
    score = metric.corpus_score(list(hypotheses), streams, n_bootstrap=RESAMPLES)
    return Bleu(
        score=_within(score.score),
        low=_within(score._mean - score._ci),
        high=_within(score._mean + score._ci),
        texts=len(hypotheses),
        signature=str(metric.get_signature()),
    )


def _within(score: float) -> float:
    """No BLEU is below 0 or above 100."""
    return min(max(float(score), 0.0), 100.0)
