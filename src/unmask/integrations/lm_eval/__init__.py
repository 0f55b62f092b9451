"""The model as lm-evaluation-harness asks it: log-likelihoods of continuations, and texts up to a stop."""
