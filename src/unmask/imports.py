"""Lazy exports of a package, and optional libraries with the pip line that installs them."""

import gc
import importlib
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from unmask.errors import UnmaskError


def extra(module: str, purpose: str, group: str = "data") -> Any:
    """The module, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise UnmaskError(f"{purpose} needs {package}: pip install 'unmask[{group}]'") from None


def lazy_exports(
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
