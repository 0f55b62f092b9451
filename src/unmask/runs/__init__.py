"""Run folders: training, inspection and planning."""
