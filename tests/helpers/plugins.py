"""Plugins of tests/plugins, registered for the time of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from unmask.registry import Registry, import_plugin

FOLDER = Path(__file__).parents[1] / "plugins"


def plugin_file(name: str) -> Path:
    """The file of a plugin, as `--plugin` takes it."""
    return FOLDER / f"{name}.py"


@contextmanager
def plugged(*names: str) -> Iterator[list[ModuleType]]:
    """Imports plugins, and removes their registrations at the end."""
    # a listing imports extensions, whose components stay
    before = [(one, {name: one[name] for name in one}) for one in Registry.registries]
    try:
        yield [import_plugin(str(plugin_file(name))) for name in names]
    finally:
        for registry, entries in before:
            registry._entries.clear()
            registry._entries.update(entries)
