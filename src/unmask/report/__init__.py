"""Reports of runs: tables, plots, one HTML page."""
