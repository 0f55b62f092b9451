"""Class labels of documents. A labelled row begins with its class token, another row with BOS.

A network trained on such rows models p(text | class) and p(text). Its prediction at the first
position is p(class | text).
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from unmask.errors import UnmaskError

MOST_CLASSES = 1000


class Labelled(str):
    """A document with its class label, or None."""

    label: str | None

    def __new__(cls, text: str, label: str | None) -> "Labelled":
        document = super().__new__(cls, text)
        document.label = label
        return document


def label_of(document: str) -> str | None:
    """The class label of a document; None if it has none."""
    return document.label if isinstance(document, Labelled) else None


def class_name(value: object, location: str, field: str) -> str | None:
    """The class label of a field's value: a text, or an integer or boolean in JSON notation."""
    if value is None or value == "":
        return None
    if isinstance(value, bool | int):
        return json.dumps(value)
    if not isinstance(value, str):
        raise UnmaskError(
            f"{location}: field {field!r} is {type(value).__name__}; "
            "a class label is a text or an integer"
        )
    return value


class Classes:
    """Collects the class labels of documents while another consumer reads the documents."""

    def __init__(self, field: str) -> None:
        self.field, self._names = field, set[str]()

    def noting(self, documents: Iterable[str]) -> Iterator[str]:
        """Yields the documents and records their class labels."""
        for document in documents:
            label = label_of(document)
            if label is not None:
                self._names.add(label)
            if len(self._names) > MOST_CLASSES:
                raise UnmaskError(
                    f"data.label_field {self.field!r} has more than {MOST_CLASSES:,} values: "
                    "name a field of class labels"
                )
            yield document

    def names(self) -> list[str]:
        """The recorded class labels, sorted."""
        if not self._names:
            raise UnmaskError(
                f"no training document has a class label in data.label_field {self.field!r}: "
                "name another field"
            )
        return sorted(self._names)


def first_token(document: str, labels: Mapping[str, int], bos_id: int) -> int:
    """The first token of a document's rows: its class token, or BOS if it has no label."""
    label = label_of(document)
    if label is None:
        return bos_id
    if label not in labels:
        known = ", ".join(list(labels)[:10]) + (", …" if len(labels) > 10 else "")
        raise UnmaskError(
            f"no training document has the class label {label!r} "
            f"(only {known or 'unlabelled ones'}): add some, or leave this class out"
        )
    return labels[label]
