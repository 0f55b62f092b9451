"""Numbers that stand: each bound with its certificate, its unit and its error."""

from unmask.evaluation.baseline import unigram_nats
from unmask.evaluation.bootstrap import Figure
from unmask.evaluation.bound import Bound, perplexity_of
from unmask.evaluation.estimators import ESTIMATORS, Estimator
from unmask.evaluation.generation import Quality, measure, visible
from unmask.evaluation.judges import Judge, MethodJudge, Sample
from unmask.evaluation.likelihood import How, choose_estimator, likelihood
from unmask.evaluation.orders import ORDERS, Order
from unmask.evaluation.schedules import Spread, variance_by_schedule
from unmask.evaluation.steps import nats_by_steps, shares_draws
from unmask.evaluation.sums import Sums

__all__ = [
    "ESTIMATORS",
    "ORDERS",
    "Bound",
    "Estimator",
    "Figure",
    "How",
    "Judge",
    "MethodJudge",
    "Order",
    "Quality",
    "Sample",
    "Spread",
    "Sums",
    "choose_estimator",
    "likelihood",
    "measure",
    "nats_by_steps",
    "perplexity_of",
    "shares_draws",
    "unigram_nats",
    "variance_by_schedule",
    "visible",
]
