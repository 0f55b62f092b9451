"""Serving models over HTTP: requests that arrive together share network calls."""
