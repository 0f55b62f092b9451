"""Documents of Python objects: datasets of Hugging Face, and iterables of texts, pairs or records."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from unmask.data.documents.fields import Fields
from unmask.data.documents.pairs import pair_of
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.sources.corpus import Corpus, hash_documents
from unmask.data.sources.hub_dataset import class_labels
from unmask.errors import UnmaskError


def corpus_of(data: Iterable[Any], fields: Fields, name: str) -> Corpus:
    """The corpus of an object. An IterableDataset is a stream; an iterator is read into a list.

    Args:
        data: texts, pairs (source, target) or records, which are mappings from fields to values.
        fields: the settings that turn records into documents.
        name: the name of the object in messages.

    Returns:
        The corpus.
    """
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        raise UnmaskError(
            f"{name} is of type {type(data).__name__}: give a dataset or a list of texts; "
            "name files in data.train"
        )
    items: Any = list(data) if isinstance(data, Iterator) else data
    faults, labels = ReadErrors(fields.corrupt), class_labels(items, fields.label_field)

    def read(start: int = 0) -> Iterator[str]:
        rest = items.skip(start) if start and hasattr(items, "skip") else islice(items, start, None)
        for number, item in enumerate(rest, start=start + 1):
            if labels and isinstance(item, Mapping):
                item = {**item, fields.label_field: labels(item[fields.label_field])}
            faults.seen += 1
            yield faults.document(_document, item, f"{name}, record {number}", fields)

    if hasattr(items, "skip") and not hasattr(items, "__len__"):  # it may have no end
        return Corpus.stream(name, read, has_fields=True)
    return Corpus(name, read, lambda: hash_documents(read()), True, faults)


def _document(item: Any, location: str, fields: Fields) -> str:
    """A text, a pair or a record as a document."""
    if isinstance(item, Mapping):
        fields.columns(list(item), location)
        return fields.document(item, location)
    if isinstance(item, str) and not (fields.source_field or fields.label_field):
        return fields.document({fields.text_field: item}, location)
    match item:
        case [str() as source, str() as target] if fields.source_field:
            return pair_of(source, target, location, ("source", "target"))
    expected = (
        "a pair (source, target)"
        if fields.source_field
        else "a record"
        if fields.label_field
        else "a text"
    )
    raise UnmaskError(f"{location} is of type {type(item).__name__}: give {expected} or a mapping")
