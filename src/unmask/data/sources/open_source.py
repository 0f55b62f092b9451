"""Opens the corpus that a source names."""

from unmask.data.documents.fields import Fields
from unmask.data.sources.corpus import SOURCES, Corpus, Source


def open_corpus(source: str, fields: Fields) -> Corpus:
    """The corpus of a source: by its scheme if it has one, else by its path.

    Args:
        source: `builtin:pydoc`, `python:stdlib`, `hf:OWNER/NAME`, `-`, a file, a folder,
            or a scheme of a plugin.
        fields: the settings that turn files and records into documents.

    Returns:
        The corpus; opening reads no documents.

    Example:
        >>> open_corpus("builtin:pydoc", Fields("line", "text")).name
        'builtin:pydoc'
    """
    registered = scheme_of(source)
    if registered is not None:
        return registered.open(source.partition(":")[2], fields)
    return SOURCES["path"].open(source, fields)


def scheme_of(source: str) -> type[Source] | None:
    """The class registered for the scheme of a source, such as `hf:`; None for a path."""
    scheme, colon, _ = source.partition(":")
    name = scheme + colon
    return SOURCES[name] if (colon or name == "-") and name in SOURCES else None
