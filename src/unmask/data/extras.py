"""Optional libraries: imported when first needed, or an error that names the pip line."""

import importlib
from typing import Any

from unmask.errors import UnmaskError


def extra(module: str, purpose: str, group: str = "data") -> Any:
    """The module, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise UnmaskError(f"{purpose} needs {package}: pip install 'unmask[{group}]'") from None
