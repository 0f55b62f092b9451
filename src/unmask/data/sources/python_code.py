"""The source `python:`: source files of Python's standard library,
of installed packages and of folders.
"""

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
    """Source files of Python packages, such as python:stdlib,numpy, or of a folder,
    such as python:./src.

    A file is a document.
    """

    @classmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """The files of the named packages and folders without their tests,
        in the order of their names.
        """
        folders = [_folder(name.strip()) for name in spec.split(",")]
        read = partial(_read, folders)
        return Corpus(f"python:{spec}", read, lambda: hash_documents(read()))


def _folder(name: str) -> Path:
    """The folder of a package's source files, found without an import of the package,
    or the named folder.
    """
    if name == STDLIB:
        return Path(sysconfig.get_path(STDLIB))
    if "/" in name:
        if not (folder := Path(name).expanduser()).is_dir():
            raise UnmaskError(f"python:{name} is no folder; give a folder of Python files")
        return folder
    try:
        found = importlib.util.find_spec(name) if name.isidentifier() else None
    except ValueError:  # a module that was not imported by its name, such as __main__
        found = None
    if found is None or not found.submodule_search_locations:
        raise UnmaskError(
            f"python:{name} is no installed package; give {STDLIB}, packages such as numpy, or folders "
            "such as ./src, separated by commas"
        )
    return Path(found.submodule_search_locations[0])


def _read(folders: list[Path]) -> Iterator[str]:
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).parts
            wanted = _LEFT_OUT.isdisjoint(parts) and not file.name.startswith("test_")
            if wanted and file.is_file():
                text = file.read_bytes()
                if len(text) <= LARGEST:
                    yield text.decode("utf-8", "replace").replace("\r\n", "\n").strip()
