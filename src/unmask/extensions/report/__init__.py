"""Reports of runs: tables, plots, one HTML page, and tables of the MDLM paper at a small scale."""

from unmask.extension import Extension

EXTENSION = Extension(__name__, commands={"report": ".report", "reproduce": ".reproduce"})
