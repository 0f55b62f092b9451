"""The model `unmask` of lm-evaluation-harness: log-likelihoods of continuations, and generation."""
