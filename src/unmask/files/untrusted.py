"""Reads untrusted files: regular files of a bounded size, inside their folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unmask.errors import UnmaskError

_LARGEST = 2**28  # bytes, ten times the size of the largest tokenizers in use


def foreign_text(path: Path, inside: Path | None = None) -> str:
    """The text of an untrusted file.

    Raises an error if it is no regular file, is too large, or links to a file outside `inside`.
    """
    if not path.is_file():
        raise UnmaskError(f"{path} is no file")
    if inside is not None and not path.resolve().is_relative_to(inside.resolve()):
        raise UnmaskError(f"{path} is a link that leads out of its folder")
    if path.stat().st_size > _LARGEST:
        raise UnmaskError(f"{path} is larger than {_LARGEST:,} bytes")
    return path.read_text(encoding="utf-8")


@contextmanager
def refusing(reason: str) -> Iterator[None]:
    """Turns any exception of a library, Rust panics included, into a one-line error."""
    try:
        yield
    except UnmaskError:
        raise
    except Exception as error:
        raise UnmaskError(f"{reason}: {error or type(error).__name__}") from None
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise UnmaskError(f"{reason}: {error}") from None


@contextmanager
def tokenizer_errors() -> Iterator[None]:
    """Turns a failure of the `tokenizers` library on a text into a one-line error."""
    try:
        yield
    except BaseException as error:
        # the library raises `Exception` itself, none of its subclasses
        if type(error) is not Exception and not _is_panic(error):
            raise
        raise UnmaskError(f"the tokenizer cannot read this text: {error}") from None


def _is_panic(error: BaseException) -> bool:
    """True if the exception is a Rust panic. Its class cannot be imported."""
    return type(error).__name__ == "PanicException"


def within(folder: Path, name: str) -> Path:
    """The path of `name` in a folder; an error if it links to a file outside the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UnmaskError(f"{path} is a link that leads out of its folder")
    return path
