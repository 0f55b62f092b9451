"""Devices, precisions, CUDA graphs, kernels and CPU cores of the machine."""
