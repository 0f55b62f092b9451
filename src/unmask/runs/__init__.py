"""Run folders: training, inspection, measurements and planning."""
