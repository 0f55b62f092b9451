"""Numbers that stand: each bound with its certificate, its unit and its error."""

from unmask.evaluation.baseline import unigram_nats
from unmask.evaluation.bootstrap import Figure
from unmask.evaluation.generation import Quality, measure, visible
from unmask.evaluation.judges import Judge, MethodJudge, Sample
from unmask.evaluation.likelihood import Bound, likelihood

__all__ = [
    "Bound",
    "Figure",
    "Judge",
    "MethodJudge",
    "Quality",
    "Sample",
    "likelihood",
    "measure",
    "unigram_nats",
    "visible",
]
