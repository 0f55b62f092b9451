"""Tokenizers of single characters, of text8's 27 symbols, and of bytes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from unmask.data.tokenizers.subwords import byte_names
from unmask.data.tokenizers.tokenizer import (
    TOKENIZERS,
    Ids,
    Tokenizer,
    TokenizerConfig,
    encoded,
    own_specials,
)

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_UTF32 = "utf-32-le"


def _codes(text: str) -> Ids:
    """The code points of a text."""
    return np.frombuffer(encoded(text, _UTF32), dtype="<u4")


@TOKENIZERS.register("characters")
class CharacterTokenizer(Tokenizer):
    """One token per character; characters outside the alphabet become U+FFFD."""

    learns = True
    samples = False
    _unknown = UNKNOWN

    def __init__(self, alphabet: Iterable[str]) -> None:
        self.alphabet = "".join(sorted({UNKNOWN, *alphabet}))
        self._table = _lookup(self.alphabet, UNKNOWN)
        super().__init__(own_specials(len(self.alphabet)))

    @classmethod
    def build(cls, config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
        """A tokenizer of all characters in the texts."""
        return cls(chain.from_iterable(map(set, texts)))

    @classmethod
    def parse(cls, files: Mapping[str, str]) -> Tokenizer:
        """The tokenizer of the alphabet in `alphabet.json`,
        or in transformers' `tokenizer.json`.
        """
        if "alphabet.json" in files:
            return cls(json.loads(files["alphabet.json"]))
        return cls(json.loads(files["tokenizer.json"])["model"]["vocab"])

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without special ids."""
        last = len(self._table) - 1
        return [self._table[np.minimum(_codes(text), last)] for text in texts]

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids; special ids are dropped."""
        return _codes(self.alphabet)[self.content(ids)].tobytes().decode(_UTF32)

    def covered(self, text: str, tokens: int) -> int:
        """The number of characters of a text that its first `tokens` tokens cover."""
        return min(tokens, len(text))

    @property
    def unknown_id(self) -> int | None:
        """The id of U+FFFD; None if it is not in the alphabet."""
        return self.alphabet.index(UNKNOWN) if UNKNOWN in self.alphabet else None

    def pieces(self) -> list[bytes | None] | None:
        """The bytes of every id, None for special ids."""
        known: list[bytes | None] = [character.encode() for character in self.alphabet]
        return known + [None] * (self.vocabulary.size - len(known))

    def backend(self) -> Backend:
        """A word-level model whose words are single characters."""
        ids = {character: index for index, character in enumerate(self.alphabet)}
        backend = Backend(models.WordLevel(ids, unk_token=self._unknown))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        backend.decoder = decoders.Fuse()
        return backend

    def files(self) -> dict[str, str]:
        """The content of the files that `save` writes, by name: everything that affects ids."""
        return super().files() | {"alphabet.json": json.dumps(self.alphabet) + "\n"}


@TOKENIZERS.register("text8")
class Text8Tokenizer(CharacterTokenizer):
    """The 27 symbols of text8: A-Z become a-z, every other character becomes a space."""

    learns = False
    _unknown = " "

    def __init__(self) -> None:
        self.alphabet = " " + LETTERS
        self._table = _lookup(self.alphabet, " ")
        for letter in LETTERS:
            self._table[ord(letter.upper())] = self._table[ord(letter)]
        Tokenizer.__init__(self, own_specials(len(self.alphabet)))

    @classmethod
    def build(cls, config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer, which has no settings."""
        return cls()

    @classmethod
    def parse(cls, files: Mapping[str, str]) -> Tokenizer:
        """The tokenizer, which has no settings."""
        return cls()

    def backend(self) -> Backend:
        """A word-level model of a-z after lower-casing; its unknown token is the space."""
        backend = super().backend()
        lower = [normalizers.Replace(letter.upper(), letter) for letter in LETTERS]
        backend.normalizer = normalizers.Sequence(lower)
        return backend


@TOKENIZERS.register("bytes")
class ByteTokenizer(Tokenizer):
    """One token per byte of UTF-8; an incomplete character decodes to U+FFFD."""

    def __init__(self) -> None:
        super().__init__(own_specials(256))

    @classmethod
    def build(cls, config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer, which has no settings."""
        return cls()

    @classmethod
    def parse(cls, files: Mapping[str, str]) -> Tokenizer:
        """The tokenizer, which has no settings."""
        return cls()

    def backend(self) -> Backend:
        """A byte-level BPE without merges; the id of a byte is its value."""
        backend = Backend(models.BPE(byte_names(), []))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        return backend

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without special ids."""
        return [np.frombuffer(encoded(text), dtype=np.uint8) for text in texts]

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids; special ids are dropped."""
        return self.content(ids).astype(np.uint8).tobytes().decode("utf-8", "replace")

    def covered(self, text: str, tokens: int) -> int:
        """The number of characters of a text that its first `tokens` tokens cover."""
        return len(encoded(text)[:tokens].decode("utf-8", "ignore"))

    def pieces(self) -> list[bytes | None] | None:
        """The bytes of every id, None for special ids."""
        known: list[bytes | None] = [bytes([byte]) for byte in range(256)]
        return known + [None] * (self.vocabulary.size - len(known))


def _lookup(alphabet: str, unknown: str) -> Ids:
    """A table from code point to id. Its last entry, the unknown id, covers all larger ones."""
    table = np.full(max(map(ord, alphabet)) + 2, alphabet.index(unknown), dtype=np.uint32)
    table[_codes(alphabet)] = np.arange(len(alphabet))
    return table
