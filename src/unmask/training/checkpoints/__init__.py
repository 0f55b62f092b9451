"""Checkpoints: background writing, retention and recovery after a crash."""
