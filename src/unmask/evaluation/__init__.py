"""Numbers that stand: each bound with its certificate, its unit and its error."""

from unmask.evaluation.baseline import unigram_nats
from unmask.evaluation.generation import Figure, Quality, measure, visible
from unmask.evaluation.likelihood import Bound, likelihood

__all__ = ["Bound", "Figure", "Quality", "likelihood", "measure", "unigram_nats", "visible"]
