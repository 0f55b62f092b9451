"""Files that somebody else may have made: of a bounded size, plain, and inside their folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unmask.errors import UnmaskError

_LARGEST = 2**28  # bytes: ten times the largest tokenizer in use


def foreign_text(path: Path, inside: Path | None = None) -> str:
    """The text of a file that must be a plain one, and, where `inside` says so, lie in that folder."""
    if not path.is_file():
        raise UnmaskError(f"{path} is no file")
    if inside is not None and not path.resolve().is_relative_to(inside.resolve()):
        raise UnmaskError(f"{path} is a link that leads out of its folder")
    if path.stat().st_size > _LARGEST:
        raise UnmaskError(f"{path} is larger than {_LARGEST:,} bytes")
    return path.read_text(encoding="utf-8")


@contextmanager
def refusing(reason: str) -> Iterator[None]:
    """Whatever a library makes of a broken file as an error of ours, a panic of Rust's included."""
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
def stopped() -> Iterator[None]:
    """What stops a tokenizer in a text, such as a pattern without end, as an error of ours."""
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and not _is_panic(error):  # the library raises plain ones
            raise
        raise UnmaskError(f"the tokenizer cannot read this text: {error}") from None


def _is_panic(error: BaseException) -> bool:
    """Rust's, which is no Exception and has no name that could be imported."""
    return type(error).__name__ == "PanicException"


def within(folder: Path, name: str) -> Path:
    """A file or folder of a folder, no link that leads out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UnmaskError(f"{path} is a link that leads out of its folder")
    return path
