"""Triton kernels, for machines that have it, on a GPU; whoever calls them can do without."""

import importlib.util
from functools import cache


@cache
def available() -> bool:
    """Is Triton there? A CPU build of torch brings none."""
    return importlib.util.find_spec("triton") is not None
