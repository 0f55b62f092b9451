"""The interface and the registry of formats, the layouts of models on disk."""

from abc import ABC, abstractmethod
from pathlib import Path

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.registry import Registry


class Format(ABC):
    """A layout of a model on disk, with a reader and a writer."""

    @classmethod
    @abstractmethod
    def matches(cls, path: Path) -> bool:
        """True if the path holds a model in this layout. It never raises an error."""

    @classmethod
    @abstractmethod
    def read(cls, path: Path) -> Bundle:
        """The model at a path. The files are untrusted."""

    @classmethod
    @abstractmethod
    def write(cls, bundle: Bundle, folder: Path) -> None:
        """Writes a model to a folder that `read` reads."""

    @classmethod
    def check_target(cls, folder: Path) -> None:
        """Raises an error if a model cannot be written to the folder.

        An existing folder must be empty or hold a model in this layout. The check runs before the
        model is read.
        """
        free = folder.is_dir() and not any(folder.iterdir())
        if folder.exists() and not free and not cls.matches(folder):
            raise UnmaskError(
                f"{folder} already exists and is no unmask model: give another folder"
            )


class ReadFormat(Format):
    """A layout with a reader and no writer."""

    @classmethod
    def write(cls, bundle: Bundle, folder: Path) -> None:
        """Raises an error."""
        cls.check_target(folder)

    @classmethod
    def check_target(cls, folder: Path) -> None:
        """Raises an error for every folder."""
        name = FORMATS.name_of(cls)
        raise UnmaskError(f"the format {name} can be read and not written: choose another format")


FORMATS: Registry[Format] = Registry("format")


def format_of(path: Path) -> type[Format] | None:
    """The format of a folder or file; None if none matches.

    Built-in formats come before plugins, so that no plugin takes their folders. Plugins come in the
    order of their registration.
    """
    return next((each for each in FORMATS.in_order() if each.matches(path)), None)
