"""Triton kernels for GPUs. Without Triton, plain torch computes the same."""
