"""The source `python:`: the source files of Python's standard library and of installed packages."""

import importlib.util
import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from unmask.data.documents.fields import Fields
from unmask.data.sources.corpus import SOURCES, Corpus, Source, hash_documents
from unmask.errors import UnmaskError

STDLIB = "stdlib"
LARGEST = 200_000  # bytes; longer files are mostly generated tables
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "testing", "idlelib", "lib2to3"}


@SOURCES.register("python:")
class PythonCode(Source):
    """Source files of installed Python packages, such as python:stdlib,numpy. A file is a document."""

    @classmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """The files of the named packages without their tests, in the order of their names."""
        folders = [_folder(name.strip()) for name in spec.split(",")]
        read = partial(_read, folders)
        return Corpus(f"python:{spec}", read, lambda: hash_documents(read()))


def _folder(name: str) -> Path:
    """The folder of a package's source files, found without an import of the package."""
    if name == STDLIB:
        return Path(sysconfig.get_path(STDLIB))
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        raise UnmaskError(
            f"python:{name} is no installed package; give {STDLIB} or packages such as numpy, "
            "separated by commas"
        )
    return Path(found.submodule_search_locations[0])


def _read(folders: list[Path]) -> Iterator[str]:
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).parts
            if _LEFT_OUT.isdisjoint(parts) and not file.name.startswith("test_"):
                text = file.read_bytes()
                if len(text) <= LARGEST:
                    yield text.decode("utf-8", "replace").replace("\r\n", "\n").strip()
