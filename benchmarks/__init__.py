"""Measurements of speed, learning, quality and reliability, each with its rows. benchmarks/README.md lists them."""
