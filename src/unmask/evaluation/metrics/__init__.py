"""Metrics of texts."""
