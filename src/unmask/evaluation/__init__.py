"""Measurements of texts: judges, metrics and suites."""
