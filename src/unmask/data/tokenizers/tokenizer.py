"""The interface, the configuration and the registry of tokenizers."""

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
from unmask.options import check_options, option
from unmask.registry import Registry
from unmask.vocabulary import Vocabulary

TOKENIZERS: Registry["Tokenizer"] = Registry("tokenizer kind")


@dataclass(frozen=True)
class TokenizerConfig:
    """The `tokenizer` section of a configuration.

    A kind with further settings has a nested `Config` that extends this class.
    """

    kind: str = "bpe"
    size: int = 4096  # bpe: ids in all, special ones included
    path: str = ""  # hf: a folder or a hub name
    source: str = ""  # the text that a kind with `learns` learns from; "": the training text
    sample: int = option(10**9, ge=1)  # most characters that a bpe learns from

    def __post_init__(self) -> None:
        kind = TOKENIZERS[self.kind]
        if not isinstance(self, kind.Config):
            raise UnmaskError(
                f"tokenizer.kind {self.kind} has its own settings: use {kind.Config.__qualname__}"
            )
        kind.check(self)
        if self.source and not kind.learns:
            learned = " and ".join(name for name in TOKENIZERS if TOKENIZERS[name].learns)
            raise UnmaskError(
                f"tokenizer.source applies to {learned}, not to {self.kind}: leave it empty"
            )
        check_options(self, "data.tokenizer.")


Ids = NDArray[np.integer]

_LOCALE = "; set LC_ALL=C.UTF-8 to read the command line as UTF-8"


class Tokenizer(ABC):
    """Encodes text as ids and decodes ids as text. Encoding never gives a special id."""

    Config: ClassVar[type[TokenizerConfig]] = TokenizerConfig
    learns: ClassVar[bool] = False  # True if `build` reads the texts
    samples: ClassVar[bool] = True  # True if `build` reads at most `tokenizer.sample` characters
    leading_space: ClassVar[bool] = False  # True if a token includes the space before its word
    drops_space: bool = False  # True if every text begins with a space that `decode` drops

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.labels: dict[str, int] = {}  # id of the class token of each label
        self.chat_template: str | None = None  # in Jinja, as in transformers

    @classmethod
    @abstractmethod
    def build(cls, config: Any, texts: Iterable[str]) -> "Tokenizer":
        """The configured tokenizer. Only a kind with `learns` reads the texts.

        Args:
            config: an instance of `Config`.
            texts: the training documents, or a sample of them.

        Returns:
            The tokenizer.
        """

    @classmethod
    @abstractmethod
    def parse(cls, files: Mapping[str, str]) -> "Tokenizer":
        """The tokenizer of saved files. Their content is untrusted.

        Args:
            files: the content of each file by name; a file is read when its name is looked up.

        Returns:
            The tokenizer whose `files()` these are.
        """

    @classmethod  # noqa: B027
    def check(cls, config: Any) -> None:
        """Raises an error for settings that this kind does not support."""

    @classmethod
    def planned_size(cls, config: Any) -> int | None:
        """The size of the vocabulary before any text is read; None if it depends on the text."""
        return None if cls.learns else cls.build(config, ()).vocabulary.size

    @property
    def kind(self) -> str:
        """The name of the kind in saved files: the registered name of the class."""
        return TOKENIZERS.name_of(self)

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without special ids."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special ids."""
        return [int(token) for token in self.encode_batch([text])[0]]

    def encode_special(self, text: str) -> list[int]:
        """The ids of a text in which the names of special tokens become their ids."""
        return self.encode(text)

    def encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
        """The ids of the parts of a text, as `encode_special` reads the whole text."""
        return [self.encode_special(part) for part in parts]

    def special_names(self) -> dict[str, str]:
        """The names of BOS and EOS in texts for `encode_special`, as chat templates call them."""
        return {"bos_token": "", "eos_token": ""}

    @abstractmethod
    def decode(self, ids: ArrayLike) -> str:
        """The text of ids; special ids are dropped."""

    @abstractmethod
    def covered(self, text: str, tokens: int) -> int:
        """The number of characters of a text that its first `tokens` tokens cover."""

    @property
    def unknown_id(self) -> int | None:
        """The id of the unknown token; None if every text can be encoded."""
        return None

    @property
    def ignored_id(self) -> int | None:
        """The id of a token without loss that is never generated, such as N of DNA;
        None if there is none.
        """
        return None

    def without_ends(self) -> "Tokenizer":
        """The tokenizer without BOS and EOS, for the packing windows."""
        raise UnmaskError(
            f"data.packing windows is for DNA, not for tokenizer.kind {self.kind}: "
            "set data.tokenizer.kind dna or another data.packing"
        )

    @property
    def pair_separators(self) -> int:
        """The number of EOS tokens between the two sentences of a pair, for classification."""
        return 1

    def pieces(self) -> list[bytes | None] | None:
        """The bytes of every id, None for special ids.

        Returns None if the bytes of a text are not the concatenated bytes of its ids.
        """
        return None

    def backend(self) -> Any:
        """The tokenizer of the `tokenizers` library with the same ids, without special tokens.

        Exported folders hold it for transformers. With None (the default) they lack its files.
        """
        return None

    def files(self) -> dict[str, str]:
        """The content of the files that `save` writes, by name: everything that affects ids."""
        vocabulary = replace(self.vocabulary, label_ids=()).to_dict()  # they are in `labels`
        state: dict[str, Any] = {"kind": self.kind, "vocabulary": vocabulary}
        if self.labels:
            state["labels"] = self.labels
        if self.chat_template is not None:
            state["chat_template"] = self.chat_template
        return {"vocabulary.json": json.dumps(state, indent=1) + "\n"}

    def save(self, folder: str | Path) -> None:
        """Writes the tokenizer to a folder that `load_tokenizer` reads."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files().items():
            (folder / name).write_text(content, encoding="utf-8")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that affects ids."""
        files = json.dumps(self.files(), sort_keys=True)
        return hashlib.blake2b(files.encode(), digest_size=16).hexdigest()

    def with_labels(self, names: Iterable[str]) -> Self:
        """The same tokenizer with a token for each class label, after all other ids."""
        v = self.vocabulary
        labels = {name: v.size + index for index, name in enumerate(names)}
        return self.having(v.extended(v.size + len(labels)), labels)

    def with_pad(self) -> Self:
        """The same tokenizer with a pad id: its own, or else the next free id."""
        v = self.vocabulary
        if v.pad_id is not None:
            return self
        return self.having(v.extended(v.size + 1, pad_id=v.size), self.labels)

    def having(self, vocabulary: Vocabulary, labels: Mapping[str, int]) -> Self:
        """The same tokenizer with another vocabulary and other class labels."""
        other = copy(self)
        other.vocabulary = replace(vocabulary, label_ids=tuple(sorted(labels.values())))
        other.labels = dict(labels)
        other.__dict__.pop("fingerprint", None)
        return other

    def content(self, ids: ArrayLike) -> Ids:
        """The ids without special ids."""
        array = np.asarray(ids, dtype=np.int64)
        return array[~np.isin(array, self._special)]

    @property
    def _special(self) -> list[int]:
        v = self.vocabulary
        special = [i for i in (v.mask_id, v.pad_id, v.bos_id, v.eos_id) if i is not None]
        return [*special, *self.labels.values()]


def own_specials(tokens: int) -> Vocabulary:
    """A vocabulary of `tokens` ids, then BOS, EOS, PAD and MASK."""
    return Vocabulary.over(tokens + 3, bos_id=tokens, eos_id=tokens + 1, pad_id=tokens + 2)


def encoded(text: str, encoding: str = "utf-8") -> bytes:
    """The bytes of a text; an error if it holds a lone surrogate."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        # Python's code for a byte of the command line that is invalid in the locale
        typed = 0xDC80 <= code <= 0xDCFF
        raise UnmaskError(
            f"character {error.start} of a text is a lone surrogate (U+{code:04X}): it is not "
            f"Unicode text{_LOCALE * typed}"
        ) from None
