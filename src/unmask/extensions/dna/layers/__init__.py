"""Layers of the networks: selective scan, short convolution, gated sum."""
