"""Subword tokenizers of the `tokenizers` library, and the training of a byte-level BPE."""

import json
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from unmask.data.tokenizers.backend_file import read_backend
from unmask.data.tokenizers.tokenizer import (
    TOKENIZERS,
    Ids,
    Tokenizer,
    TokenizerConfig,
    encoded,
    own_specials,
)
from unmask.data.tokenizers.word_cache import WordCache, cuttable
from unmask.errors import UnmaskError
from unmask.files.untrusted import tokenizer_errors
from unmask.vocabulary import Vocabulary

_ID = np.dtype(np.uintc)  # typecode I of `array`
_SPACE = "Ġ"  # GPT-2's character for a space
_WORD = "▁"  # SentencePiece's character for a space
# the decoder of SentencePiece, and its last step if texts begin with a space
_PIECES: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": _WORD}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # its name of a byte
_LEAST = 260  # 256 bytes, BOS, EOS, PAD and MASK


@TOKENIZERS.register("bpe")
class SubwordTokenizer(Tokenizer):
    """A byte-level BPE of `size` ids in all, trained on the training documents.

    It wraps any tokenizer of the `tokenizers` library. Special tokens never come from text.
    """

    kind = "subwords"
    learns = True
    leading_space = True

    def __init__(self, backend: Backend, vocabulary: Vocabulary) -> None:
        # files from the hub may set truncation and padding, which are the task of packing
        backend.no_truncation()
        backend.no_padding()
        # a literal "[MASK]" or "<|endoftext|>" in a text is encoded as plain text
        backend.encode_special_tokens = True
        self._backend = backend
        self.drops_space = _steps(backend)[-1:] == [_STRIP]
        _check_ids(backend, vocabulary)
        encode_word = self._encoded_word if isinstance(backend.model, models.BPE) else None
        self._units = WordCache(self._encoded, encode_word) if cuttable(backend) else None
        super().__init__(vocabulary)

    @classmethod
    def build(cls, config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
        """A byte-level BPE that learns from the texts."""
        return train_bpe(texts, config.size)

    @classmethod
    def parse(cls, files: Mapping[str, str]) -> Tokenizer:
        """The tokenizer of saved files."""
        vocabulary = Vocabulary(**json.loads(files["vocabulary.json"])["vocabulary"])
        return SubwordTokenizer(read_backend(files["tokenizer.json"]), vocabulary)

    @classmethod
    def check(cls, config: TokenizerConfig) -> None:
        """Raises an error if `size` is below the number of bytes and special tokens."""
        if config.size < _LEAST:
            raise UnmaskError(
                f"tokenizer.size is {config.size}; a byte-level BPE needs at least {_LEAST}"
            )

    @classmethod
    def planned_size(cls, config: TokenizerConfig) -> int | None:
        """The configured vocabulary size; a short text gives fewer ids."""
        return config.size

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without special ids."""
        encode = self._units.encode_batch if self._units else self._encoded
        try:
            with tokenizer_errors():
                found = encode(list(texts))
        except TypeError:  # the library raises it for a lone surrogate
            for text in texts:
                encoded(text)
            raise
        ends = list(accumulate(len(ids) // _ID.itemsize for ids in found))
        whole = self._checked(np.frombuffer(b"".join(found), _ID))
        return [whole[first:end] for first, end in pairwise([0, *ends])]

    def encode_special(self, text: str) -> list[int]:
        """The ids of a text in which the names of special tokens become their ids."""
        with tokenizer_errors():
            return list(self._special_backend.encode(text, add_special_tokens=False).ids)

    def encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
        """The ids of the parts of a text, as `encode_special` reads the whole text.

        A token belongs to the part in which it begins.
        """
        with tokenizer_errors():
            found = self._special_backend.encode("".join(parts), add_special_tokens=False)
        ends = np.cumsum([len(part) for part in parts])
        at = np.searchsorted(ends, [start for start, _ in found.offsets], side="right")
        ids, at = np.array(found.ids, dtype=np.int64), np.minimum(at, len(parts) - 1)
        return [ids[at == number].tolist() for number in range(len(parts))]

    def special_names(self) -> dict[str, str]:
        """The names of BOS and EOS in texts for `encode_special`, as chat templates call them."""
        ids = {"bos_token": self.vocabulary.bos_id, "eos_token": self.vocabulary.eos_id}
        names = {
            name: None if token is None else self._backend.id_to_token(token)
            for name, token in ids.items()
        }
        return {name: token or "" for name, token in names.items()}

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids; special ids are dropped."""
        with tokenizer_errors():
            return str(self._backend.decode(self.content(ids).tolist()))

    def covered(self, text: str, tokens: int) -> int:
        """The number of characters of a text that its first `tokens` tokens cover."""
        start = 0
        with tokenizer_errors():
            if self._units:
                start, text, size = self._units.reach(text, tokens * _ID.itemsize)
                tokens = size // _ID.itemsize
            offsets = self._backend.encode(text, add_special_tokens=False).offsets[:tokens]
        return start + int(offsets[-1][1]) if offsets else 0

    @property
    def unknown_id(self) -> int | None:
        """The id of the unknown token; None if every text can be encoded."""
        token = getattr(self._backend.model, "unk_token", None)
        return None if token is None else self._backend.token_to_id(token)

    @property
    def pair_separators(self) -> int:
        """The number of EOS tokens between the two sentences of a pair, as the library adds them."""
        if self._backend.post_processor is None:
            return 1
        # BOS and the last EOS are not between the sentences
        return max(1, int(self._backend.num_special_tokens_to_add(is_pair=True)) - 2)

    def pieces(self) -> list[bytes | None] | None:
        """The bytes of every id, None for special ids.

        None unless the tokens are byte-level, or SentencePiece's with bytes for unknown characters.
        Other decoders add or remove spaces between tokens. SentencePiece's removes one space at the
        start of a text.
        """
        spelled = _spelling(self._backend)
        if spelled is None:
            return None
        added = self._backend.get_added_tokens_decoder()
        special = {i for i, token in added.items() if token.special} | set(self._special)
        names = [self._backend.id_to_token(i) for i in range(self.vocabulary.size)]
        return [
            None if name is None or i in special else spelled(name) for i, name in enumerate(names)
        ]

    def files(self) -> dict[str, str]:
        """The content of the files that `save` writes, by name: everything that affects ids."""
        return super().files() | {"tokenizer.json": self._backend.to_str() + "\n"}

    def backend(self) -> Backend:
        """A copy of the library's tokenizer."""
        return Backend.from_str(self._backend.to_str())

    @cached_property
    def _special_backend(self) -> Backend:
        backend = self.backend()
        backend.encode_special_tokens = False
        return backend

    def _encoded(self, texts: list[str]) -> list[bytes]:
        """The ids of each text as bytes, computed by the library on all cores."""
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        return [array(_ID.char, encoding.ids).tobytes() for encoding in encodings]

    def _encoded_word(self, word: str) -> bytes:
        """The ids of one word as bytes. The library's normalizer and pre-tokenizer are skipped."""
        tokens = self._backend.model.tokenize(word.replace(" ", _SPACE))
        return array(_ID.char, [token.id for token in tokens]).tobytes()

    def _checked(self, ids: Ids) -> Ids:
        """The ids; an error if the tokenizer encoded plain text as MASK."""
        if (ids == self.vocabulary.mask_id).any():
            token = self._backend.id_to_token(self.vocabulary.mask_id)
            raise UnmaskError(
                f"a text holds {token!r}, which this tokenizer encodes as its mask token: "
                "remove it from the text"
            )
        return ids


def _check_ids(backend: Backend, vocabulary: Vocabulary) -> None:
    """Raises an error if two tokens share an id or an id is beyond the vocabulary."""
    ids = backend.get_vocab(with_added_tokens=True).values()
    if len(set(ids)) < len(ids):
        raise UnmaskError("two tokens of the tokenizer have the same id")
    if ids and max(ids) >= vocabulary.size:
        raise UnmaskError(
            f"a token of the tokenizer has the id {max(ids):,}, beyond a vocabulary of {vocabulary.size:,}"
        )


def byte_level(model: models.BPE, prefix_space: bool = False) -> Backend:
    """A byte-level BPE like GPT-2's: no unknown token; a token includes the space before its word."""
    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    return backend


@cache
def byte_names() -> dict[str, int]:
    """GPT-2's byte alphabet: from character to byte. A printable byte has its own character."""
    names = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = [name for name in names if ord(name) < 256]
    rest = sorted(set(range(256)) - set(map(ord, own)))
    return {name: ord(name) for name in own} | dict(zip(names[len(own) :], rest, strict=True))


def _spelled(name: str) -> bytes:
    """The bytes of a byte-level token; the UTF-8 bytes of a token outside GPT-2's alphabet."""
    table = byte_names()
    byte_level_name = all(character in table for character in name)
    return bytes(table[character] for character in name) if byte_level_name else name.encode()


def _spelling(backend: Backend) -> Callable[[str], bytes] | None:
    """The function from the name of a token to its bytes; None if there is none."""
    if isinstance(backend.decoder, decoders.ByteLevel):
        return _spelled
    return _sentence_piece if _steps(backend) in (_PIECES, [*_PIECES, _STRIP]) else None


def _steps(backend: Backend) -> list[dict[str, Any]]:
    """The steps of a decoder that has several; none for the byte-level decoder."""
    if not isinstance(backend.decoder, decoders.Sequence):
        return []
    found = json.loads(backend.to_str())["decoder"]["decoders"]
    return list(found)


def _sentence_piece(name: str) -> bytes:
    """The bytes of a token of SentencePiece."""
    if _BYTE.fullmatch(name):
        return bytes([int(name[3:5], 16)])
    return name.replace(_WORD, " ").encode()


def train_bpe(texts: Iterable[str], size: int) -> SubwordTokenizer:
    """A byte-level BPE of at most `size` ids, special ids included."""
    trainer = trainers.BpeTrainer(
        vocab_size=size - 4,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend = byte_level(models.BPE())
    backend.train_from_iterator(texts, trainer)
    return SubwordTokenizer(backend, own_specials(backend.get_vocab_size()))
