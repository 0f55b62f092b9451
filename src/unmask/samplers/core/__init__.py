"""Shared code of the samplers: canvas, token sampler, state, time grid, CUDA graphs."""
