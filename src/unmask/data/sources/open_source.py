"""Opens the corpus that a source names."""

from unmask.data.documents.fields import Fields
from unmask.data.sources.corpus import SOURCES, Corpus, Source


def open_corpus(source: str, reading: Fields) -> Corpus:
    """The corpus of a source: by its scheme if it has one, else by its path.

    Args:
        source: `builtin:pydoc`, `hf:OWNER/NAME`, `-`, a file, a folder, or a scheme of a plugin.
        reading: the settings that turn files and records into documents.

    Returns:
        The corpus; opening reads no documents.

    Example:
        >>> open_corpus("builtin:pydoc", Reading("line", "text")).name
        'builtin:pydoc'
    """
    found = scheme_of(source)
    if found is not None:
        return found.open(source.partition(":")[2], reading)
    return SOURCES["path"].open(source, reading)


def scheme_of(source: str) -> type[Source] | None:
    """The class registered for the scheme of a source, such as `hf:`; None for a path."""
    scheme, colon, _ = source.partition(":")
    name = scheme + colon
    return SOURCES[name] if (colon or name == "-") and name in SOURCES else None
