"""Extensions: packages that add components, commands and recipes, each with a manifest.

A manifest names modules and imports none of them. A module is imported when one of its names is used.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from unmask.errors import UnmaskError

GROUP = "unmask"  # entry points of installed packages
_FOLDER = Path(__file__).parent / "extensions"

T = TypeVar("T")


@dataclass(frozen=True)
class Attachment:
    """A trained part beside the network of a model folder, which a sampler uses, such as a policy.

    Its name is an option of `generate` and `Model.save`, and of `unmask generate` and `unmask export` with
    a file as value. Its class is a torch module with the `digest` of the model that it was trained for
    (empty for any), with `save(path, digest)` and with `load(path)`.

    Args:
        kind: the class, as "MODULE:CLASS".
        file: its file in a model folder.
        sampler: the sampler that uses it.
        field: the field of that sampler that holds it.
        help: help of the option of `unmask generate`.
        stored: help of the option of `unmask export`.
        remedy: the end of the error for a part of another model.
    """

    kind: str
    file: str
    sampler: str
    field: str
    help: str
    stored: str
    remedy: str

    @property
    def type(self) -> Any:
        """The class, which is imported."""
        module, _, name = self.kind.partition(":")
        return getattr(import_module(module), name)


@dataclass(frozen=True)
class Extension:
    """The manifest of a package: for each name that it adds, the module that has it.

    A module is written relative to the package, such as ".suite". The manifest of a folder of
    `unmask/extensions` is `EXTENSION` in its `__init__.py`. An installed package declares its own by
    the entry point `NAME = "PACKAGE:EXTENSION"` in the group "unmask".

    Args:
        package: the `__name__` of the package.
        components: by kind of registry, such as "sampler": each name with the module that registers it.
        commands: each command with the module whose `add` adds it to the parser. The module imports
            torch only when the command runs, because `unmask --help` imports it.
        models: the names of models that it ships, each in the folder `shipped/NAME` of the package.
        attachments: the parts of a model folder that it adds, by name.

    Example:
        >>> manifest = Extension("my_package", {"suite": {"rhymes": ".rhymes"}})
        >>> list(manifest.modules("suite", "rhymes"))
        ['my_package.rhymes']
    """

    package: str
    components: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    attachments: Mapping[str, Attachment] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of the package's name."""
        return self.package.rpartition(".")[2]

    @property
    def folder(self) -> Path:
        """The folder of the package; recipes are in its folder `recipes`, models in `shipped`."""
        return Path(str(import_module(self.package).__file__)).parent

    def modules(self, kind: str, name: str | None = None) -> Iterator[str]:
        """The modules that register components of a kind: that of a name, or all of them."""
        homes = self.components.get(kind, {})
        found = homes.values() if name is None else [homes[name]] if name in homes else []
        yield from (self.package + module for module in dict.fromkeys(found))


@cache
def extensions() -> tuple[Extension, ...]:
    """The manifests of the folders in `unmask/extensions`, and of installed packages.

    Returns:
        The manifests, those of `unmask/extensions` in alphabetical order.

    Example:
        >>> commands = [name for each in extensions() for name in each.commands]
    """
    names = sorted(file.parent.name for file in _FOLDER.glob("*/__init__.py"))
    own = [import_module(f"{__package__}.extensions.{name}").EXTENSION for name in names]
    return (*own, *(importing(each.value, each.load) for each in installed() if each.attr))


def installed() -> list[EntryPoint]:
    """The entry points of installed packages: manifests, and modules that register components."""
    return list(entry_points(group=GROUP))


@cache
def import_components(kind: str, name: str | None = None) -> None:
    """Imports the modules of extensions that register components of a kind.

    Args:
        kind: the kind of a registry.
        name: the component; None for all of the kind.
    """
    for extension in extensions():
        for module in extension.modules(kind, name):
            importing(module, partial(import_module, module))


def importing(name: str, load: Callable[[], T]) -> T:
    """The result of an import. The error of an import that fails names the plugin."""
    try:
        return load()
    except UnmaskError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnmaskError(f"the plugin {name} cannot be imported: {reason}") from error


@cache
def commands() -> dict[str, str]:
    """The commands of all extensions, each with its module."""
    found: dict[str, Any] = {}
    for extension in extensions():
        found |= {name: extension.package + module for name, module in extension.commands.items()}
    return found


@cache
def attachments() -> dict[str, Attachment]:
    """The attachments of all extensions, by name."""
    return {name: part for each in extensions() for name, part in each.attachments.items()}
