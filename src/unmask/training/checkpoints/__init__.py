"""Checkpoints: saved in the background, kept by rules, read after a crash."""
