"""Reports of runs: tables in the terminal, plots, one HTML page."""

from unmask.extension import Extension

EXTENSION = Extension(__name__, commands={"report": ".report"})
