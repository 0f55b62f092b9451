"""Atomic writes of folders and files, and manifests of hashes that reveal damage."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

MANIFEST = "manifest.json"


class Damaged(UnmaskError):
    """A folder that differs from its manifest: truncated, changed or incomplete."""


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yields a temporary folder to fill.
    On leaving it gets a manifest and is renamed to `target`.
    """
    building, replaced = _building(target), _replaced(target)
    _settle(target)
    building.mkdir(parents=True)
    try:
        yield building
        write_json(building / MANIFEST, _digests(building))
        for path in [*building.rglob("*"), building]:
            _sync(path)
        if target.exists():
            target.rename(replaced)
        building.rename(target)
        for folder in (target.parent, target.parent.parent):  # the parent may be new as well
            _sync(folder)
    finally:
        _settle(target)


def remove(folder: Path) -> None:
    """Deletes a folder. It is renamed first, so that a kill leaves no folder that looks damaged."""
    folder.rename(_building(folder))
    _settle(folder)


def recover(parent: Path) -> None:
    """Cleans up after a killed `atomic_folder` or `remove`:
    restores or deletes temporary folders.
    """
    for left in [
        *parent.glob(_replaced(parent / "*").name),
        *parent.glob(_building(parent / "*").name),
    ]:
        _settle(parent / left.stem.removeprefix("."))


def verify(folder: Path, *names: str, others: bool = False) -> None:
    """Raises an error if a file of a folder differs from the manifest.

    Args:
        folder: the folder.
        names: the files to check; all files of the manifest if there are none.
        others: check the other files of the manifest too.
    """
    for damage in damages(folder, *names, others=others):
        raise Damaged(f"{folder} is damaged: {damage}")


def damages(folder: Path, *names: str, others: bool = False) -> Iterator[str]:
    """The differences between a folder and its manifest, one text each.
    Arguments as for `verify`.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        requested = [*names, *manifest] if others or not names else names
        listed = {name: manifest.get(name) for name in requested}
    except OSError:
        yield f"{MANIFEST} is missing"
        return
    except (ValueError, AttributeError, TypeError, RecursionError):
        yield f"{MANIFEST} cannot be read"
        return
    for name, digest in listed.items():
        path = folder / name
        if not os.path.isfile(path) or not path.resolve().is_relative_to(folder.resolve()):
            yield f"{name} is missing"
        elif (found := _digest_or_none(path)) != digest:
            yield f"{name} {'is not what was written' if found else 'cannot be read'}"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes an indented JSON file."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def replace(path: Path, content: bytes) -> None:
    """Replaces a file atomically: after a crash it is either the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    _sync(beside)
    beside.rename(path)
    _sync(path.parent)


def seal(folder: Path, *names: str) -> None:
    """Writes a manifest of some files and subfolders of a folder; the others may still change."""
    found = [path for name in names for path in (folder / name, *(folder / name).rglob("*"))]
    digests = {p.relative_to(folder).as_posix(): _digest(p) for p in found if p.is_file()}
    replace(folder / MANIFEST, (json.dumps(digests, indent=1) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@contextmanager
def full_disk(details: Callable[[], str]) -> Iterator[None]:
    """Turns the system's disk-full error into a one-line error, which ends with `details()`."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise UnmaskError(f"disk full: {details()}") from error


def is_full(error: OSError) -> bool:
    """True if the error means a full disk or an exceeded quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def check_place(file: Path) -> None:
    """Raises an error if no result can be written to `file`; called before a long computation."""
    if not file.resolve().parent.is_dir():
        raise UnmaskError(f"there is no folder for {file}: make it first")
    if file.is_dir():
        raise UnmaskError(f"{file} is a folder: name a file in it")


def _building(target: Path) -> Path:
    return target.with_name(f".{target.name}.building")


def _replaced(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")


def _settle(target: Path) -> None:
    """Restores the replaced folder if `target` is missing, and deletes all temporary folders."""
    if _replaced(target).exists() and not target.exists():
        _replaced(target).rename(target)
    for left in (_replaced(target), _building(target)):
        shutil.rmtree(left, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_or_none(path: Path) -> str | None:
    """The hash of a file; None if the disk cannot read it."""
    try:
        return _digest(path)
    except OSError:
        return None


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _digest(path) for path in files}


def _sync(path: Path) -> None:
    """Flushes a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder(folder: str = "") -> Path:
    """The cache folder: `folder` if given, or $UNMASK_CACHE, or ~/.cache/unmask."""
    path = Path(folder or os.environ.get("UNMASK_CACHE") or "~/.cache/unmask")
    try:
        return path.expanduser()
    except RuntimeError:  # no $HOME and no entry in the user database
        raise UnmaskError(
            f"no cache folder {path}, since this user has no home folder: set UNMASK_CACHE to a folder"
        ) from None
