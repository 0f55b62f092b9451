"""The corpus of a source, by the form of its name."""

from unmask.data.documents.fields import Fields
from unmask.data.sources.corpus import SOURCES, Corpus, Source


def open_corpus(source: str, reading: Fields) -> Corpus:
    """The corpus that a source names: by its scheme, or else as a path.

    Args:
        source: `builtin:pydoc`, `hf:OWNER/NAME`, `-`, a file, a folder, or a scheme of a plugin.
        reading: the settings by which files and records become documents.

    Example:
        >>> open_corpus("builtin:pydoc", Reading("line", "text")).name
        'builtin:pydoc'
    """
    found = scheme_of(source)
    if found is not None:
        return found.open(source.partition(":")[2], reading)
    return SOURCES["path"].open(source, reading)


def scheme_of(source: str) -> type[Source] | None:
    """The source that a scheme names, as `hf:` does; None of a path."""
    scheme, colon, _ = source.partition(":")
    name = scheme + colon
    return SOURCES[name] if (colon or name == "-") and name in SOURCES else None
