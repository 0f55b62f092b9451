"""Sources of documents: files, folders, standard input, the hub."""

from unmask.data.sources.corpus import SOURCES, Corpus, Source
from unmask.data.sources.hub_dataset import HubDataset
from unmask.data.sources.local import Builtin, Elsewhere, LocalPath, StandardInput

__all__ = [
    "SOURCES",
    "Builtin",
    "Corpus",
    "Elsewhere",
    "HubDataset",
    "LocalPath",
    "Source",
    "StandardInput",
]
