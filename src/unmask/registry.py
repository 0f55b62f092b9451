"""Registries of named components, and plugins that add components to them.

The decorator `@REGISTRY.register("name")` registers a class.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar, Generic, TypeVar

from unmask.errors import UnmaskError, unknown
from unmask.extension import import_components, importing, installed

PLUGINS = "UNMASK_PLUGINS"  # environment variable: files and modules, separated by os.pathsep

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """The components of one kind, by name.

    The lookup of an unknown name imports the module of an extension that has the name, or else the
    plugins. A listing imports the modules of all extensions, and the plugins.
    """

    registries: ClassVar[list["Registry[Any]"]] = []  # all registries of the process

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, type[T]] = {}
        self.registries.append(self)

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator that registers the class under `name`."""

        def enter(entry: C) -> C:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice: choose another name")
            self._entries[name] = entry
            return entry

        return enter

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._entries:
            import_components(self.kind, name)
        if name not in self._entries:
            self._load_all()
        try:
            return self._entries[name]
        except KeyError:
            raise unknown(self.kind, name, self._entries) from None

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter(sorted(self._entries))

    def in_order(self) -> Iterator[type[T]]:
        """The classes in the order of registration.
        Extensions and plugins are imported after the core.
        """
        own = dict(self._entries)
        yield from own.values()
        self._load_all()
        yield from [entry for name, entry in self._entries.items() if name not in own]

    def _load_all(self) -> None:
        import_components(self.kind)
        load_plugins()

    def build(self, name: str, **fields: Any) -> T:
        """An instance of the component `name`."""
        return self[name](**fields)

    def name_of(self, component: object) -> str:
        """The registered name of a component or a class;
        of its nearest base class if it has none.
        """
        kind = component if isinstance(component, type) else type(component)
        names = {entry: name for name, entry in self._entries.items()}
        return next(names[base] for base in kind.__mro__ if base in names)

    def summaries(self) -> dict[str, str]:
        """The first paragraph of the docstring of each component, by name."""
        docs = {name: self[name].__doc__ or "" for name in self}
        return {name: " ".join(doc.strip().split("\n\n")[0].split()) for name, doc in docs.items()}


_imported: set[str] = set()  # plugins by name; "" stands for the entry points
_importing = RLock()


def load_plugins() -> None:
    """Imports each plugin once; its `register` calls add components.

    Plugins are the modules that entry points of the group "unmask" of installed packages name, and
    the files and modules in the environment variable UNMASK_PLUGINS.
    """
    with _importing:
        if "" not in _imported:
            _imported.add("")
            for entry in installed():
                importing(entry.value, entry.load)
        for name in os.environ.get(PLUGINS, "").split(os.pathsep):
            if name not in _imported:
                _imported.add(name)
                importing(name, partial(import_plugin, name))


def import_plugin(name: str) -> Any:
    """Imports the module of a plugin.

    Args:
        name: A Python file ("my_sampler.py") or an importable module ("my_package.samplers").

    Returns:
        The module.

    Example:
        >>> import_plugin("json").__name__
        'json'
    """
    if not name.endswith(".py"):
        return import_module(name)
    path = Path(name)
    if not path.is_file():
        raise UnmaskError(f"there is no plugin file {name}: check {PLUGINS}")
    module_name = f"unmask_plugin_{path.stem}"
    spec = spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[module_name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
