"""Named components: adding one is a class and a `@REGISTRY.register("name")` line above it."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from unmask.errors import unknown

T = TypeVar("T")
C = TypeVar("C", bound=type)


class Registry(Generic[T]):
    """The components of one kind, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator that enters the class under `name`."""

        def enter(entry: C) -> C:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return enter

    def __getitem__(self, name: str) -> type[T]:
        try:
            return self._entries[name]
        except KeyError:
            raise unknown(self.kind, name, self._entries) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def build(self, name: str, **fields: Any) -> T:
        """An instance of the component `name`."""
        return self[name](**fields)

    def name_of(self, component: object) -> str:
        """The name under which a component's class is registered."""
        return next(name for name, entry in self._entries.items() if entry is type(component))

    def summaries(self) -> dict[str, str]:
        """Each name with the first line of its docstring."""
        return {name: (self[name].__doc__ or "").strip().splitlines()[0] for name in self}
