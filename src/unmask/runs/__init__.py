"""Run folders: training, inspection, measurements."""
