"""Check for a working Triton on this machine."""

import importlib.util
import warnings
from collections.abc import Callable
from functools import cache

import torch

from unmask.errors import UnmaskWarning


def constant_in_graphs(function: Callable[..., bool]) -> Callable[..., bool]:
    """Marks a function whose result torch.compile takes as a constant.

    It equals torch.compiler.assume_constant_result, which imports torch._dynamo: half the time of loading a model.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@cache
def kernels_available() -> bool:
    """True if Triton is installed and compiles and runs a kernel.

    This needs a C compiler and a writable folder. CPU builds of torch have no Triton.
    """
    if importlib.util.find_spec("triton") is None:
        return False
    advice = "install a C compiler, or set TRITON_CACHE_DIR to a writable folder"
    return _runs(_draw, "Triton is installed but does not run", advice)


@cache
def scan_kernels_available() -> bool:
    """True if Triton works and also compiles and runs the kernels of the selective scan."""
    advice = "update torch and Triton"
    return kernels_available() and _runs(_scan, "the kernels of the scan do not run", advice)


@cache
def block_kernels_available() -> bool:
    """True if Triton works and also compiles and runs the kernels of short convolutions and gated sums."""
    advice = "update torch and Triton"
    return kernels_available() and _runs(_block, "the kernels of a block do not run", advice)


def _draw() -> None:
    from unmask.runtime.kernels import categorical_draw

    one = torch.zeros(1, 1, device="cuda")
    categorical_draw.draw(one, one[0].double())


def _scan() -> None:
    from unmask.runtime.kernels import recurrence

    # as many states and channels as let other calls use the same compiled kernels
    x = torch.zeros(1, 16, 16, device="cuda")
    *_, firsts = recurrence.forward(x, x, x[0], x, x, x, 2)
    recurrence.backward(x, x, x[0], x, x, firsts, x, x, 2)
    torch.cuda.synchronize()


def _block() -> None:
    from unmask.runtime.kernels import convolution, gate

    x = torch.zeros(1, 16, 16, device="cuda")
    weight, bias = x[0, :, :4], x[0, 0]
    convolution.forward(x, weight, bias, 0, False, True)
    convolution.backward(x, weight, bias, x, 0, False, True)
    parts = [x, x, bias]
    for directions in (parts, 2 * parts):
        gate.forward(x, directions)
        gate.backward(x, x, directions)
    torch.cuda.synchronize()


def _runs(work: Callable[[], None], failure: str, advice: str) -> bool:
    """True if some kernels compile and run; else a warning has the reason."""
    try:
        work()
    except Exception as error:  # a compiler, a linker and a disk raise many kinds of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(
            f"{failure} ({reason}), so plain torch is used, which is slower: {advice}",
            UnmaskWarning,
            stacklevel=3,
        )
        return False
    return True
