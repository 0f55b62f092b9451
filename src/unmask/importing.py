"""Names that are fetched when they are first asked for: torch, and what needs it, takes seconds to import."""

import gc
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__` that fetches each of these names from the module that is its home."""

    def fetch(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(_imported(homes[name]), name)

    return fetch


def _imported(module: str) -> Any:
    """A module; a tenth of the wait would go into looking for garbage in what is there to stay."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collecting:
            gc.enable()
