"""Settings of a foreign checkpoint: read by name, each of its type, or an error that says which."""

from collections.abc import Mapping
from typing import Any, TypeVar

from unmask.errors import UnmaskError

T = TypeVar("T", int, float, str, bool)


class Settings:
    """A tree of settings that somebody else wrote, and where it came from."""

    def __init__(self, tree: Any, where: str) -> None:
        if not isinstance(tree, Mapping):
            raise UnmaskError(f"{where}: the settings are no table of names and values")
        self.tree, self.where = tree, where

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """The setting at a dotted name."""
        value = self._find(name)
        if value is None:
            value = default
        if value is None:
            raise UnmaskError(f"{self.where} has no setting {name}")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise UnmaskError(f"{self.where}: {name} is {value!r}, and no {kind.__name__}")
        return value

    def require(self, name: str, *usable: Any) -> None:
        """Refuses what would make another network of the same weights."""
        value = self._find(name)
        if value not in usable:
            known = " or ".join(map(repr, usable))
            raise UnmaskError(f"{self.where}: {name} is {value!r}; what is read here is {known}")

    def _find(self, name: str) -> Any:
        value: Any = self.tree
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value
