"""Forms of files that extensions add: how they are recognised, read and written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from unmask.data.documents.fields import Fields
from unmask.data.documents.read_errors import ReadErrors
from unmask.errors import UnmaskError
from unmask.registry import Registry
from unmask.vocabulary import Vocabulary


class FileForm:
    """A form of files beside text, JSON, tables, Parquet and Arrow. Its documents have no fields.

    A form with `magic` is binary and read by its path; any other is text and read as a stream.
    """

    suffixes: ClassVar[tuple[str, ...]]  # of files that are read from a folder
    magic: ClassVar[tuple[bytes, ...]] = ()  # first bytes of a binary file
    writes: ClassVar[bool] = False  # True if `unmask generate` can write texts in this form

    @classmethod
    def matches(cls, head: bytes) -> bool:
        """True if a text file without a known suffix begins in this form."""
        return False

    @classmethod
    def check(cls, path: Path) -> None:
        """Raises an error if a file is cut short, which its stream may not show; none by default."""

    @classmethod
    def documents(
        cls, content: Any, name: str, fields: Fields, faults: ReadErrors
    ) -> Iterator[str]:
        """The documents of a stream, or of the path of a binary file."""
        raise NotImplementedError

    @classmethod
    def suits(cls, vocabulary: Vocabulary) -> bool:
        """True if texts of this vocabulary are written in this form by default."""
        return False

    @classmethod
    def record(cls, text: str, number: int, seed: int, label: str | None) -> str:
        """A generated text as a record.

        Args:
            text: the text.
            number: its number, from 1.
            seed: its seed.
            label: the class label that it was generated for, if any.
        """
        raise UnmaskError(f"{FILE_FORMS.name_of(cls)} is a form to read: give another --format")


FILE_FORMS: Registry[FileForm] = Registry("file form")


def registered_form(suffix: str, head: bytes) -> str | None:
    """The name of the registered text form of a file; its suffix decides, or else its first bytes.

    Args:
        suffix: the suffix of the file; "" if the content alone decides.
        head: the first bytes; b"" if the suffix alone decides.
    """
    for name in FILE_FORMS:
        form = FILE_FORMS[name]
        if not form.magic and (suffix in form.suffixes or form.matches(head)):
            return name
    return None
