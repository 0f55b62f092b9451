"""Evaluation of models: judges, metrics and suites."""
