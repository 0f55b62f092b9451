"""Judges: language models that score texts."""
