"""Suites: the measurements that `unmask evaluate NAME` runs."""

from unmask.evaluation.suites.generated_texts import Generation
from unmask.evaluation.suites.suite import SUITES, Progress, Suite, column
from unmask.evaluation.suites.text_likelihood import Likelihood

__all__ = [
    "SUITES",
    "Generation",
    "Likelihood",
    "Progress",
    "Suite",
    "column",
]
