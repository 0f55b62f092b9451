"""Documents of a dataset on the Hugging Face hub."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from unmask.data.documents.fields import Fields
from unmask.data.documents.pairs import pair_of
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.sources.corpus import SOURCES, Corpus, Source, hash_documents
from unmask.errors import UnmaskError
from unmask.files.hub import offline_if_unreachable
from unmask.imports import extra


@SOURCES.register("hf:")
class HubDataset(Source):
    """A dataset of the Hugging Face hub: hf:OWNER/NAME[/CONFIG][:SPLIT]."""

    anywhere = True

    @classmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        """The corpus of a dataset. A name with one slash is OWNER/NAME, never NAME/CONFIG."""
        path, _, split = spec.partition(":")
        parts = path.split("/")
        if not all(parts):
            raise UnmaskError(
                f"hf:{spec} names no dataset of the hub: give hf:OWNER/NAME, or a path without hf:"
            )
        repository, config = "/".join(parts[:2]), "/".join(parts[2:]) or None
        return hub_corpus(spec, fields, repository, config, split=split or "train")


def hub_corpus(name: str, fields: Fields, *arguments: str | None, **options: str) -> Corpus:
    """The corpus of a hub dataset; `arguments` and `options` are those of `load_dataset`."""
    faults = ReadErrors(fields.corrupt)

    def read() -> Iterator[str]:
        datasets = extra("datasets", f"hf:{name}")
        formats = getattr(datasets, "packaged_modules", None)
        if arguments and arguments[0] in getattr(formats, "_PACKAGED_DATASETS_MODULES", ()):
            raise UnmaskError(  # the library would read all files of the working folder
                f"hf:{name} names a file format: give hf:OWNER/NAME, or the path of a file without hf:"
            )
        try:
            with offline_if_unreachable(datasets, f"hf:{name}"):
                rows = datasets.load_dataset(*arguments, **options)
        except ConnectionError:
            raise UnmaskError(
                f"the dataset hf:{name} is not in the local cache, and the hub cannot be reached"
            ) from None
        except Exception as error:  # of the library, of a format's reader or of a dataset script
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise UnmaskError(f"the dataset hf:{name} cannot be loaded: {reason}") from None
        columns = fields.columns(rows.column_names, f"the dataset hf:{name}")
        label = class_labels(rows, fields.label_field)
        for number, row in enumerate(rows.select_columns(columns), start=1):
            if label:
                row[fields.label_field] = label(row[fields.label_field])
            faults.seen += 1
            yield faults.document(fields.document, row, f"hf:{name}, record {number}")

    return Corpus(f"hf:{name}", read, lambda: hash_documents(read()), True, faults)


def class_labels(rows: Any, field: str) -> Callable[[int | None], str | None] | None:
    """A function from the index of a class label to its name; None if `field` is no ClassLabel.

    The name of a missing index or -1 is None.
    """
    names = getattr((getattr(rows, "features", None) or {}).get(field), "names", None)
    if not names:
        return None
    return lambda index: None if index is None or index < 0 else names[index]


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
