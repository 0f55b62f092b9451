"""Execution of concurrent requests: the engine and its batcher."""
