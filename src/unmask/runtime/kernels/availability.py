"""Check for a working Triton on this machine."""

import importlib.util
import warnings
from functools import cache

import torch

from unmask.errors import UnmaskWarning


@cache
def kernels_available() -> bool:
    """True if Triton is installed and compiles and runs a kernel.

    This needs a C compiler and a writable folder. CPU builds of torch have no Triton.
    """
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        from unmask.runtime.kernels import categorical_draw

        one = torch.zeros(1, 1, device="cuda")
        categorical_draw.draw(one, one[0].double())
    except Exception as error:  # a compiler, a linker and a disk raise many kinds of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(
            f"Triton is installed but does not run ({reason}), so plain torch is used, which is "
            "slower: install a C compiler, or set TRITON_CACHE_DIR to a writable folder",
            UnmaskWarning,
            stacklevel=2,
        )
        return False
    return True
