"""The model as lm-evaluation-harness asks it: log-likelihoods of continuations, and texts up to a stop."""

from unmask.harness.answers import Answers
from unmask.harness.options import Options
from unmask.harness.questions import Question, windows
from unmask.harness.scoring import Scorer

__all__ = ["Answers", "Options", "Question", "Scorer", "windows"]
