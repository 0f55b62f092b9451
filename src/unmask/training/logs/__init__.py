"""Logs of a run: JSON lines, loggers, progress, loss curve."""
