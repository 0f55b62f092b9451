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
    return runs(_draw, "Triton is installed but does not run", advice)


def _draw() -> None:
    from unmask.runtime.kernels import categorical_draw

    one = torch.zeros(1, 1, device="cuda")
    categorical_draw.draw(one, one[0].double())


def runs(work: Callable[[], None], failure: str, advice: str) -> bool:
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
