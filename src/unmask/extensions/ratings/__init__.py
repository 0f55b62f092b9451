"""Ratings by hand: blind comparisons of texts in the browser, a file of votes and their report."""

from unmask.extension import Extension

EXTENSION = Extension(__name__, commands={"rate": ".rate"})
