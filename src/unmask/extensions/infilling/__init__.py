"""Infilling: gaps in held-out texts, filled by a model and compared with the original, as a suite."""

from unmask.extension import Extension

EXTENSION = Extension(__name__, {"suite": {"infilling": ".infilling"}})
