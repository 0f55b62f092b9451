"""Checks for working kernels of the scan and of the block around it."""

from functools import cache

import torch

from unmask.runtime.kernels.availability import kernels_available, runs


@cache
def scan_kernels_available() -> bool:
    """True if Triton works and also compiles and runs the kernels of the selective scan."""
    advice = "update torch and Triton"
    return kernels_available() and runs(_scan, "the kernels of the scan do not run", advice)


@cache
def block_kernels_available() -> bool:
    """True if Triton works and also compiles and runs the kernels of short convolutions and gated sums."""
    advice = "update torch and Triton"
    return kernels_available() and runs(_block, "the kernels of a block do not run", advice)


def _scan() -> None:
    from unmask.extensions.dna.kernels import recurrence

    # as many states and channels as let other calls use the same compiled kernels
    x = torch.zeros(1, 16, 16, device="cuda")
    *_, firsts = recurrence.forward(x, x, x[0], x, x, x, 2)
    recurrence.backward(x, x, x[0], x, x, firsts, x, x, 2)
    torch.cuda.synchronize()


def _block() -> None:
    from unmask.extensions.dna.kernels import convolution, gate

    x = torch.zeros(1, 16, 16, device="cuda")
    weight, bias = x[0, :, :4], x[0, 0]
    convolution.forward(x, weight, bias, 0, False, True)
    convolution.backward(x, weight, bias, x, 0, False, True)
    parts = [x, x, bias]
    for directions in (parts, 2 * parts):
        gate.forward(x, directions)
        gate.backward(x, x, directions)
    torch.cuda.synchronize()
