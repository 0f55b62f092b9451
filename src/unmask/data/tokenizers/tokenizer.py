"""Tokenizers: text to ids and back, and a fingerprint of all that changes them; their registry."""

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

from unmask.errors import UnmaskError
from unmask.options import check_options
from unmask.registry import Registry
from unmask.vocabulary import Vocabulary

TOKENIZERS: Registry["Tokenizer"] = Registry("tokenizer kind")


@dataclass(frozen=True)
class TokenizerConfig:
    """A tokenizer by its kind, the ids in all (bpe; specials included), a folder or hub name (hf).

    A kind that learns does so from the training text, or from another source. A kind with settings of
    its own has a nested `Config` that extends this class.
    """

    kind: str = "bpe"
    size: int = 4096
    path: str = ""
    source: str = ""
    sample: int = 10**9  # characters that a bpe learns from at most

    def __post_init__(self) -> None:
        kind = TOKENIZERS[self.kind]
        if not isinstance(self, kind.Config):
            raise UnmaskError(
                f"tokenizer.kind {self.kind} has settings of its own: use {kind.Config.__qualname__}"
            )
        kind.check(self)
        if self.source and not kind.learns:
            learned = " and ".join(name for name in TOKENIZERS if TOKENIZERS[name].learns)
            raise UnmaskError(f"tokenizer.source is for {learned}, not {self.kind}")
        if self.sample < 1:
            raise UnmaskError(f"tokenizer.sample is {self.sample}; it must be at least 1")
        check_options(self)


Ids = NDArray[np.integer]

_LOCALE = "; a command line is read in UTF-8 where the locale is, as LC_ALL=C.UTF-8 makes it"


class Tokenizer(ABC):
    """Text to ids and back; the special ids never come out of text."""

    Config: ClassVar[type[TokenizerConfig]] = TokenizerConfig
    learns: ClassVar[bool] = False  # from texts
    samples: ClassVar[bool] = True  # learns from `tokenizer.sample` characters; else from all
    leading_space: ClassVar[bool] = False  # a token carries the space before its word

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.labels: dict[str, int] = {}  # the class tokens by name

    @classmethod
    @abstractmethod
    def build(cls, config: Any, texts: Iterable[str]) -> "Tokenizer":
        """The configured tokenizer; a kind that does not learn never reads the texts.

        Args:
            config: an instance of `Config`.
            texts: the training documents, or a sample of them.
        """

    @classmethod
    @abstractmethod
    def parse(cls, files: Mapping[str, str]) -> "Tokenizer":
        """The tokenizer that `files` described; anybody may have written them.

        Args:
            files: the content of each file by its name; reading is put off until a name is looked up.
        """

    @classmethod  # noqa: B027
    def check(cls, config: Any) -> None:
        """Raises an error for settings that the kind cannot work with."""

    @classmethod
    def planned_size(cls, config: Any) -> int | None:
        """The size of the vocabulary before any text is read; None if only the text tells it."""
        return None if cls.learns else cls.build(config, ()).vocabulary.size

    @property
    def kind(self) -> str:
        """The kind as files name it: the name under which the class is registered."""
        return TOKENIZERS.name_of(self)

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

    def backend(self) -> Any:
        """The tokenizer of the `tokenizers` library with the same ids, without special tokens.

        transformers reads it in exported folders. None (the default) leaves its files out of them.
        """
        return None

    def files(self) -> dict[str, str]:
        """The content of the files that `save` writes, by name: everything that changes ids."""
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
        return self.having(v.extended(v.size + len(labels)), labels)

    def with_pad(self) -> Self:
        """The same tokenizer with a pad id: its own, or the next free one."""
        v = self.vocabulary
        if v.pad_id is not None:
            return self
        return self.having(v.extended(v.size + 1, pad_id=v.size), self.labels)

    def having(self, vocabulary: Vocabulary, labels: Mapping[str, int]) -> Self:
        """The same tokenizer with other special ids."""
        other = copy(self)
        other.vocabulary = replace(vocabulary, label_ids=tuple(sorted(labels.values())))
        other.labels = dict(labels)
        other.__dict__.pop("fingerprint", None)
        return other

    def content(self, ids: ArrayLike) -> Ids:
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
