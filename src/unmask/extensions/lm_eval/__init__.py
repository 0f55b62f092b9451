"""lm-evaluation-harness: the model class `unmask`, and the command that runs the tasks."""

from unmask.extension import Extension

EXTENSION = Extension(__name__, commands={"harness": ".harness"})
