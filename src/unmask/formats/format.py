"""The seam of formats: a layout of a model on the disk, read and written."""

from abc import ABC, abstractmethod
from pathlib import Path

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.registry import Registry


class Format(ABC):
    """One layout of a model's folder."""

    @classmethod
    @abstractmethod
    def matches(cls, path: Path) -> bool:
        """True if the path holds a model in this layout; it raises nothing, whatever lies there."""

    @classmethod
    @abstractmethod
    def read(cls, path: Path) -> Bundle:
        """The model; anybody may have written the files."""

    @classmethod
    @abstractmethod
    def write(cls, bundle: Bundle, folder: Path) -> None:
        """Writes a model to a folder that `read` reads."""

    @classmethod
    def check_target(cls, folder: Path) -> None:
        """Raises an error before a model is read, if it cannot be written to the folder.

        A folder that is there must be empty or hold a model in this layout.
        """
        free = folder.is_dir() and not any(folder.iterdir())
        if folder.exists() and not free and not cls.matches(folder):
            raise UnmaskError(
                f"{folder} is there already and is no model of ours: give another folder"
            )


class ReadFormat(Format):
    """A layout that is read and never written."""

    @classmethod
    def write(cls, bundle: Bundle, folder: Path) -> None:
        """Refuses."""
        cls.check_target(folder)

    @classmethod
    def check_target(cls, folder: Path) -> None:
        """Refuses every folder."""
        name = FORMATS.name_of(cls)
        raise UnmaskError(f"models in the format {name} are read, not written: choose another")


FORMATS: Registry[Format] = Registry("format")


def format_of(path: Path) -> type[Format] | None:
    """The format of a folder or file; None if none matches.

    The package's own formats are asked first, so that no plugin takes their folders, then those of
    plugins in the order of their registration.
    """
    return next((each for each in FORMATS.in_order() if each.matches(path)), None)
