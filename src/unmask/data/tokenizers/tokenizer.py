"""What every tokenizer does: text to ids and back, and a fingerprint of all that changes them."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unmask.errors import UnmaskError, unknown
from unmask.vocabulary import Vocabulary

KINDS = ("bpe", "bytes", "characters", "hf", "text8")
LEARNED = ("bpe", "characters")


@dataclass(frozen=True)
class TokenizerConfig:
    """Which tokenizer: a kind, the ids in all (bpe; specials included), a folder or hub name (hf).

    What bpe and characters learn from is the training text, or another source.
    """

    kind: str = "bpe"
    size: int = 4096
    path: str = ""
    source: str = ""
    sample: int = 10**9  # characters that a bpe learns from at most

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("tokenizer kind", self.kind, KINDS)
        # 256 bytes, BOS, EOS, PAD and MASK.
        if self.kind == "bpe" and self.size < 260:
            raise UnmaskError(f"tokenizer.size is {self.size}; a byte-level BPE needs at least 260")
        if self.kind == "hf" and not self.path:
            raise UnmaskError("tokenizer.kind hf needs tokenizer.path: a folder or a hub name")
        if self.source and self.kind not in LEARNED:
            raise UnmaskError(f"tokenizer.source is for {' and '.join(LEARNED)}, not {self.kind}")
        if self.sample < 1:
            raise UnmaskError(f"tokenizer.sample is {self.sample}; it must be at least 1")


Ids = NDArray[np.integer]

_LOCALE = "; a command line is read in UTF-8 where the locale is, as LC_ALL=C.UTF-8 makes it"


class Tokenizer(ABC):
    """Text to ids and back; the special ids never come out of text."""

    kind: ClassVar[str]
    leading_space: ClassVar[bool]  # whether a token carries the space before its word

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.labels: dict[str, int] = {}  # the class tokens by name

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without special ones."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special ones."""
        return [int(token) for token in self.encode_batch([text])[0]]

    @abstractmethod
    def decode(self, ids: ArrayLike) -> str:
        """The text of ids; special ones are dropped."""

    @abstractmethod
    def covered(self, text: str, tokens: int) -> int:
        """How many characters of a text its first `tokens` tokens stand for."""

    @property
    def unknown_id(self) -> int | None:
        """What stands for all that there is no token for; None if nothing does."""
        return None

    def pieces(self) -> list[bytes | None] | None:
        """The bytes of every id, None for special ones; None if a text is not its pieces in a row."""
        return None

    def files(self) -> dict[str, str]:
        """What `save` writes, by file name: everything that changes ids."""
        vocabulary = replace(self.vocabulary, label_ids=()).to_dict()  # `labels` has them by name
        state: dict[str, Any] = {"kind": self.kind, "vocabulary": vocabulary}
        if self.labels:
            state["labels"] = self.labels
        return {"vocabulary.json": json.dumps(state, indent=1) + "\n"}

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer to a folder that `load_tokenizer` reads."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files().items():
            (folder / name).write_text(content, encoding="utf-8")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that changes ids."""
        files = json.dumps(self.files(), sort_keys=True)
        return hashlib.blake2b(files.encode(), digest_size=16).hexdigest()

    def with_labels(self, names: Iterable[str]) -> Self:
        """The same tokenizer with a token for each class, behind every other id."""
        v = self.vocabulary
        labels = {name: v.size + index for index, name in enumerate(names)}
        return self.having(replace(v, size=v.size + len(labels)), labels)

    def having(self, vocabulary: Vocabulary, labels: Mapping[str, int]) -> Self:
        """The same tokenizer with other special ids."""
        other = copy(self)
        other.vocabulary = replace(vocabulary, label_ids=tuple(labels.values()))
        other.labels = dict(labels)
        other.__dict__.pop("fingerprint", None)
        return other

    def _content(self, ids: ArrayLike) -> Ids:
        """The ids without special ones."""
        array = np.asarray(ids, dtype=np.int64)
        return array[~np.isin(array, self._special)]

    @property
    def _special(self) -> list[int]:
        v = self.vocabulary
        special = [i for i in (v.mask_id, v.pad_id, v.bos_id, v.eos_id) if i is not None]
        return [*special, *self.labels.values()]


def own_specials(tokens: int) -> Vocabulary:
    """BOS, EOS and PAD of our own behind `tokens` ids, then MASK."""
    return Vocabulary.over(tokens + 3, bos_id=tokens, eos_id=tokens + 1, pad_id=tokens + 2)


def encoded(text: str, encoding: str = "utf-8") -> bytes:
    """The bytes of a text, or an error if it holds half a surrogate pair."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        typed = 0xDC80 <= code <= 0xDCFF  # as Python reads an argument that its locale cannot
        raise UnmaskError(
            f"character {error.start} of a text is a lone surrogate (U+{code:04X}): it is not "
            f"Unicode text{_LOCALE * typed}"
        ) from None
