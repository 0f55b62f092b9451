"""Numbers that stand: each bound with its certificate, its unit and its error."""

from unmask.evaluation.baseline import unigram_nats
from unmask.evaluation.likelihood import Bound, likelihood

__all__ = ["Bound", "likelihood", "unigram_nats"]
