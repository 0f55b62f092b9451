"""Our classes meet transformers, whichever of the two is imported first, and neither waits for the other.

`import unmask` must not import transformers, and transformers has no entry points to be found by. So
its modules of Auto classes are watched for, and ours too: when Python has executed both, whichever
was last and in whatever thread, ours are registered.
"""

import sys
import warnings
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from threading import Lock
from types import ModuleType
from typing import Any

MODEL_TYPE = "unmask"  # what transformers calls our models

# our classes, by the module of transformers that they are registered in
_OURS = {
    "transformers.models.auto.configuration_auto": "unmask.hub.configuration",
    "transformers.models.auto.modeling_auto": "unmask.hub.modeling",
}
_THEIRS = {ours: theirs for theirs, ours in _OURS.items()}


def meet() -> None:
    """Registers with transformers now if it is there, and otherwise when it comes."""
    watch = next((finder for finder in sys.meta_path if isinstance(finder, _Watch)), None)
    if watch is None:
        sys.meta_path.insert(0, watch := _Watch())
    for name in _OURS:
        if sys.modules.get(name) is not None:
            module = import_module(name)  # waits for a thread that is importing it just now
            if not getattr(module.__spec__, "_initializing", False):
                watch.arrived(name)


class _Watch(MetaPathFinder):
    """Finds nothing itself: it lets a module be found as ever, and acts once it has been executed."""

    def __init__(self) -> None:
        self._there: set[str] = set()  # modules that have been executed
        self._met: dict[str, tuple[ModuleType, ModuleType]] = {}  # who knows whom
        self._lock = Lock()

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _OURS and name not in _THEIRS:
            return None
        others = [finder for finder in sys.meta_path if not isinstance(finder, _Watch)]
        found = (f.find_spec(name, path, target) for f in others if hasattr(f, "find_spec"))
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def then_register(module: ModuleType) -> None:
            execute(module)
            if module.__name__ == name:  # some loaders have several modules
                self.arrived(name, anew=True)

        spec.loader.exec_module = then_register  # type: ignore[method-assign]
        return spec

    def arrived(self, name: str, anew: bool = False) -> None:
        """A module of a pair is there: theirs brings ours, and whichever is last registers."""
        theirs = _THEIRS.get(name, name)
        with self._lock:
            self._there.add(name)
            if anew:  # what it was told before is gone
                self._met.pop(theirs, None)
        try:
            if name in _OURS:
                # in the middle of its own import it is not there yet, and registers when it is
                import_module(_OURS[name])
            self._register(theirs)
        except Exception as error:  # whoever imports transformers may not want us at all
            warnings.warn(f"transformers does not know unmask's models: {error}", stacklevel=2)

    def _register(self, theirs: str) -> None:
        ours = _OURS[theirs]
        with self._lock:
            if not {theirs, ours} <= self._there:
                return
            pair = sys.modules[theirs], sys.modules[ours]
            if self._met.get(theirs) == pair:
                return
            self._met[theirs] = pair
        pair[1].register(pair[0])
