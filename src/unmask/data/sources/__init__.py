"""Sources of documents: files, folders, standard input, the hub, Python packages."""

from unmask.data.sources.corpus import SOURCES, Corpus, Source
from unmask.data.sources.hub_dataset import HubDataset
from unmask.data.sources.local import Builtin, Elsewhere, LocalPath, StandardInput
from unmask.data.sources.python_code import PythonCode

__all__ = [
    "SOURCES",
    "Builtin",
    "Corpus",
    "Elsewhere",
    "HubDataset",
    "LocalPath",
    "PythonCode",
    "Source",
    "StandardInput",
]
