"""A cache of the ids of short units of text, so that each unit is encoded once.

A subword tokenizer splits a text into words before it looks them up in its vocabulary. This module
cuts a text only where both GPT-2's and BERT's rule split it. The part between two cuts, a unit, has
the same ids wherever it occurs. Most units of a text are in the cache already.
"""

import re
from collections.abc import Callable, Sequence

from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

Encode = Callable[[list[str]], list[bytes]]
EncodeWord = Callable[[str], bytes]

# A unit begins before a space that a visible character follows, between ASCII letters or digits and
# other ASCII signs, and at a line break next to letters or digits. It does not begin after an
# apostrophe, since 's is one word for GPT-2, nor within a run of spaces. There is no cut at other
# whitespace or at characters outside ASCII.
_WORD, _SIGN = r"0-9A-Za-z", r"!-&(-/:-@\[-`{-~"
_UNIT = re.compile(
    rf"[ ']?[{_WORD}]++(?=[ \n'{_SIGN}]|\Z)"
    rf"| ?[{_SIGN}]++(?=[ \n{_WORD}]|\Z)"
    rf"|\n(?=[{_WORD}])"
    r"|[\s\S][^ ]*(?: (?!\S)[^ ]*)*"
)
# a unit that is one word under GPT-2's rule; except for the space, BPE spells it unchanged
_PLAIN = re.compile(rf" ?(?:[A-Za-z]+|[0-9]+|[{_SIGN}]+)")
_WIDE = 16  # mean characters of a unit, above which a text is not cached: Chinese has no spaces
_LONG = 64  # characters; a longer unit is not cached, since it rarely occurs again
_ROOM = 80_000_000  # approximate limit of the cache in bytes
_ENTRY = 180  # bytes of an entry beside its characters


class WordCache:
    """Encodes texts as ids (in bytes) through a cache of units.

    `encode` encodes any texts. `encode_word`, if given, encodes one plain word at less cost.
    """

    def __init__(self, encode: Encode, encode_word: EncodeWord | None = None) -> None:
        self._encode = encode
        self._encode_word = encode_word
        self._cache = _UnitCache(self._ids)

    def __reduce__(self) -> tuple[type["WordCache"], tuple[Encode, EncodeWord | None]]:
        """A pickled copy starts with an empty cache."""
        return WordCache, (self._encode, self._encode_word)

    def encode_batch(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text. `encode` encodes all texts with long units in one batch."""
        found = [self._cached_ids(text) for text in texts]
        left = [text for text, ids in zip(texts, found, strict=True) if ids is None]
        rest = iter(self._encode(left) if left else [])
        return [next(rest) if ids is None else ids for ids in found]

    def reach(self, text: str, size: int) -> tuple[int, str, int]:
        """The unit that contains byte `size` of a text's ids.

        Returns:
            The unit's offset in the text, the unit, and the bytes of its ids up to `size`.
        """
        found, offset = (0, "", 0), 0
        for unit in _UNIT.findall(text):
            if size <= 0:
                break
            ids = self._cache[unit]
            if ids:
                found = (offset, unit, size)
            size, offset = size - len(ids), offset + len(unit)
        return found

    def _cached_ids(self, text: str) -> bytes | None:
        """The ids of a text; None if its units are too long on average."""
        units = _UNIT.findall(text)
        if len(text) > _WIDE * len(units):
            return None
        return b"".join(map(self._cache.__getitem__, units))

    def _ids(self, unit: str) -> bytes:
        if self._encode_word and _PLAIN.fullmatch(unit):
            return self._encode_word(unit)
        return self._encode([unit])[0]


class _UnitCache(dict[str, bytes]):
    """The cache: ids of units, computed at the first lookup and kept while there is room."""

    def __init__(self, find: EncodeWord) -> None:
        self._find = find
        self._bytes = 0

    def __missing__(self, unit: str) -> bytes:
        ids = self._find(unit)
        if len(unit) <= _LONG:
            self[unit] = ids
            self._bytes += _ENTRY + len(unit)
            if self._bytes > _ROOM:
                self._drop_newer()
        return ids

    def _drop_newer(self) -> None:
        """Drops the newer entries, about half: units that occur early occur most often."""
        for unit in list(self)[_ROOM // 2 // _ENTRY :]:
            self.pop(unit, None)
        self._bytes = sum(_ENTRY + len(unit) for unit in list(self))


def cuttable(backend: Backend) -> bool:
    """True if a unit has the same ids wherever it occurs.

    Added tokens that are not special prevent this, since the library finds them before it splits
    words. BPE dropout prevents it too. Special tokens do not,
    since their text is encoded as plain text.
    """
    words, model, cleaner = backend.pre_tokenizer, backend.model, backend.normalizer
    gpt2 = (
        isinstance(words, pre_tokenizers.ByteLevel)
        and words.use_regex
        and not words.add_prefix_space
        and cleaner is None
        and isinstance(model, models.BPE)
        and not model.dropout
    )
    bert = (
        isinstance(words, pre_tokenizers.BertPreTokenizer)
        and (cleaner is None or isinstance(cleaner, normalizers.BertNormalizer))
        and isinstance(model, models.WordPiece)
    )
    added = backend.get_added_tokens_decoder().values()
    return (gpt2 or bert) and all(token.special for token in added)
