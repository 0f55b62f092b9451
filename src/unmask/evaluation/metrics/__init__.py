"""Metrics of generated texts: quality, diversity, MAUVE."""
