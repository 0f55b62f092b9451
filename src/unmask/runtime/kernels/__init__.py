"""Triton kernels for GPUs; plain torch computes the same where Triton does not run."""
