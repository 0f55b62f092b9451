"""Suites: the measurements that `unmask evaluate NAME` runs."""

from unmask.evaluation.suites.context_gain import Retrieval
from unmask.evaluation.suites.generated_texts import Generation
from unmask.evaluation.suites.genomic_benchmarks import GenomicBenchmarks
from unmask.evaluation.suites.infilling import Infilling
from unmask.evaluation.suites.suite import SUITES, Progress, Suite, column
from unmask.evaluation.suites.text_likelihood import Likelihood
from unmask.evaluation.suites.translation import TranslationSuite
from unmask.evaluation.suites.zero_shot import ZeroShot

__all__ = [
    "SUITES",
    "Generation",
    "GenomicBenchmarks",
    "Infilling",
    "Likelihood",
    "Progress",
    "Retrieval",
    "Suite",
    "TranslationSuite",
    "ZeroShot",
    "column",
]
