"""Requests side by side: the engine and its batches."""
