"""Texts from a bundle: prompts and gaps in, results out."""
