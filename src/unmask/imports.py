"""Lazy exports of a package, and imports of optional libraries."""

import gc
import importlib
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from unmask.errors import UnmaskError

# The package is on no index. After publication this is "pip install 'unmask[{extra}]'".
INSTALL = "pip install -e '.[{extra}]' in the clone, or pip install 'WHEEL[{extra}]'"
# and this one "pip install unmask-models"
INSTALL_MODELS = "pip install unmask_models-*.whl, the wheel beside that of unmask"


def install_command(extra: str) -> str:
    """The pip command that installs an extra of this package.

    Args:
        extra: the name of the extra in pyproject.toml.

    Returns:
        The command for a clone and for a wheel.

    Example:
        >>> install_command("serve")
        "pip install -e '.[serve]' in the clone, or pip install 'WHEEL[serve]'"
    """
    return INSTALL.format(extra=extra)


def extra(module: str, purpose: str, group: str = "data") -> Any:
    """Imports an optional module; if it is missing, the error gives the pip command."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise UnmaskError(f"{purpose} needs {package}: {install_command(group)}") from None


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports a name at its first use.

    `homes` has the module of each name.
    """
    module = sys.modules[package]

    def fetch(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(_imported(homes[name]), name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        return list(module.__all__)

    return fetch, names


def _imported(module: str) -> Any:
    """Imports a module without garbage collection, which takes a tenth of the import time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collecting:
            gc.enable()
