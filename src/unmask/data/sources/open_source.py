"""The corpus of a source, by the form of its name."""

from pathlib import Path

from unmask.data.documents.fields import Reading
from unmask.data.sources.corpus import ELSEWHERE, Corpus
from unmask.data.sources.hub_dataset import _dataset
from unmask.data.sources.local import _builtin, _files, _is_text, _parallel, _standard_input
from unmask.data.sources.parallel import parallel_files
from unmask.errors import UnmaskError


def open_corpus(source: str, reading: Reading) -> Corpus:
    """The corpus that a source string names."""
    scheme, colon, rest = source.partition(":")
    if colon and scheme == "builtin":
        return _builtin(rest)
    if colon and scheme == "hf":
        return _dataset(rest, reading)
    if source.startswith(ELSEWHERE):
        raise UnmaskError(f"the text {rest!r} lies where the model was trained")
    if source == "-":
        return _standard_input(reading)
    if _is_text(source):
        raise UnmaskError(
            f"no file is called {source[:40]!r}…; texts themselves are given as a list"
        )
    if not source:
        raise UnmaskError("the name of a source is empty; . is the folder here")
    if paths := parallel_files(source):
        return _parallel(source, paths, reading)
    return _files(Path(source), reading)
