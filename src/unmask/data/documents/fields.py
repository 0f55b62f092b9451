"""Fields of a record and the document made from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unmask.data.documents.labels import Labelled, class_name
from unmask.data.documents.messages import chat_of
from unmask.data.documents.pairs import pair_of
from unmask.data.documents.regions import Regions
from unmask.errors import UnmaskError


@dataclass(frozen=True)
class Fields:
    """Settings that turn files into documents: separator of plain text, field names of records."""

    separator: str
    text_field: str
    label_field: str = ""
    source_field: str = ""  # "": records are not pairs
    target_field: str = ""
    messages_field: str = ""  # "": records are no chats
    corrupt: float = 0.0  # largest share of unreadable lines or records; they are skipped
    one_of_many: bool = False  # the file is one of many in a folder
    window: int = 0  # bases of a window of a genome; 0: a record is one document
    regions: Regions = field(default_factory=Regions)  # parts of a genome to read

    def columns(self, names: Sequence[str], location: str) -> list[str]:
        """The fields to read; an error if one is not among `names`."""
        settings: tuple[str, ...] = ("text_field", "label_field")
        if self.source_field:
            settings = ("source_field", "target_field")
        if self.messages_field:
            settings = ("messages_field",)
        chosen = {setting: getattr(self, setting) for setting in settings}
        for setting, name in chosen.items():
            if name and name not in names:
                raise UnmaskError(
                    f"{location} has no field {name!r}; it has {', '.join(names)}: set data.{setting}"
                )
        return [name for name in chosen.values() if name]

    def document(self, record: Mapping[str, object], location: str) -> str:
        """The document of a record: a pair, a chat, or a text with its class label if one is configured.

        `location` names the record in errors.
        """
        if self.source_field:
            fields = self.source_field, self.target_field
            source, target = (text_of(record[name], location, name) for name in fields)
            return pair_of(source, target, location, fields)
        if self.messages_field:
            return chat_of(record[self.messages_field], location, self.messages_field)
        text = text_of(record[self.text_field], location, self.text_field)
        if not self.label_field:
            return text
        label = class_name(record[self.label_field], location, self.label_field)
        return Labelled(text, label and text_of(label, location, self.label_field))


def text_of(value: object, location: str, field: str) -> str:
    """The text of a field; null gives an empty text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnmaskError(f"{location}: field {field!r} is {type(value).__name__}, not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UnmaskError(
            f"{location}: field {field!r} holds a lone surrogate, which is not Unicode text"
        ) from None
    return value
