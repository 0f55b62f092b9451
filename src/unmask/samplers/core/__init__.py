"""Parts that samplers share: canvas, token sampler, state, time grid, graphs."""
