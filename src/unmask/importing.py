"""Names that are fetched when they are first asked for: torch, and what needs it, takes seconds to import."""

import gc
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__`, which fetches each of these names once from its home, and `__dir__`."""
    here = sys.modules[package]

    def fetch(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(_imported(homes[name]), name)
        setattr(here, name, value)
        return value

    def names() -> list[str]:
        return list(here.__all__)

    return fetch, names


def _imported(module: str) -> Any:
    """A module; a tenth of the wait would go into looking for garbage in what is there to stay."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collecting:
            gc.enable()
