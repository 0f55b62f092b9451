"""Our classes meet transformers, whichever of the two is imported first, and neither waits for the other.

`import unmask` must not import transformers, and transformers has no entry points to be found by. So
its modules of Auto classes are watched for: when Python has executed one, ours are registered.
"""

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# what registers our classes, by the module of transformers that they are registered in
_REGISTER = {
    "transformers.models.auto.configuration_auto": "unmask.hub.configuration",
    "transformers.models.auto.modeling_auto": "unmask.hub.modeling",
}


def meet() -> None:
    """Registers with transformers now if it is there, and otherwise when it comes."""
    if not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())
    for there, ours in _REGISTER.items():
        module = sys.modules.get(there)
        # one that is being imported just now will come by the watch
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            import_module(ours).register()


class _Watch(MetaPathFinder):
    """Finds nothing itself: it lets a module be found as ever, and acts once it has been executed."""

    def __init__(self) -> None:
        self._asking = False

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _REGISTER or self._asking:
            return None
        self._asking = True
        try:
            spec = find_spec(name)
        finally:
            self._asking = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def then_register(module: ModuleType) -> None:
            execute(module)
            import_module(_REGISTER[name]).register()

        spec.loader.exec_module = then_register  # type: ignore[method-assign]
        return spec
