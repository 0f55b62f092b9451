"""Classes of documents: a row begins with its class token in place of BOS, or, unlabelled, with BOS.

So a model of labelled rows knows p(text | class) and p(text) from one network, and, at the first
place, p(class | text).
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from unmask.errors import UnmaskError

MOST_CLASSES = 1000


class Labelled(str):
    """A document with the name of its class, or None."""

    label: str | None

    def __new__(cls, text: str, label: str | None) -> "Labelled":
        document = super().__new__(cls, text)
        document.label = label
        return document


def label_of(document: str) -> str | None:
    """The class of a document, if it has one."""
    return document.label if isinstance(document, Labelled) else None


def class_name(value: object, place: str, field: str) -> str | None:
    """A field's value as the name of a class: text, or a number or truth value as JSON writes it."""
    if value is None or value == "":
        return None
    if isinstance(value, bool | int):
        return json.dumps(value)
    if not isinstance(value, str):
        raise UnmaskError(
            f"{place}: field {field!r} is {type(value).__name__}; a class is text or a whole number"
        )
    return value


class Classes:
    """The classes of documents, noted while the documents are read for something else."""

    def __init__(self, field: str) -> None:
        self.field, self._names = field, set[str]()

    def noting(self, documents: Iterable[str]) -> Iterator[str]:
        """The documents, their classes noted."""
        for document in documents:
            label = label_of(document)
            if label is not None:
                self._names.add(label)
            if len(self._names) > MOST_CLASSES:
                raise UnmaskError(
                    f"data.label_field {self.field!r} has more than {MOST_CLASSES:,} values: it is no "
                    "class"
                )
            yield document

    def names(self) -> list[str]:
        """The classes that were noted, sorted."""
        if not self._names:
            raise UnmaskError(
                f"no training document has a class in data.label_field {self.field!r}"
            )
        return sorted(self._names)


def first_token(document: str, labels: Mapping[str, int], bos_id: int) -> int:
    """What the rows of a document begin with: its class, or BOS if it has none."""
    label = label_of(document)
    if label is None:
        return bos_id
    if label not in labels:
        known = ", ".join(list(labels)[:10]) + (", …" if len(labels) > 10 else "")
        raise UnmaskError(
            f"no training document is of the class {label!r} (only {known or 'unlabelled ones'}): "
            "add some, or leave this class out"
        )
    return labels[label]
