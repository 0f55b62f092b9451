"""The sampler of a schedule of each token."""
