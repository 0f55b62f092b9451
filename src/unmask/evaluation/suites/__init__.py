"""Suites of measurements."""
