"""Ids looked up: a text is cut where no token reaches across, and each part is encoded once.

A subword tokenizer splits a text into words before it looks at its vocabulary. The places below lie
between words of both usual rules, GPT-2's and BERT's, whatever else is in the text. What stands between
two of them, a unit, has the same ids wherever it occurs, and a text is mostly units met before.
"""

import re
from collections.abc import Callable, Sequence

from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

Encode = Callable[[list[str]], list[bytes]]
EncodeWord = Callable[[str], bytes]

# A unit begins before a space that something visible follows, which goes with it, and where ASCII
# letters and digits meet other signs of ASCII; but not behind an apostrophe, which GPT-2 keeps with 's,
# nor within a run of spaces. Any other whitespace and whatever is not ASCII stays where it is.
_WORD, _SIGN = r"0-9A-Za-z", r"!-&(-/:-@\[-`{-~"
_UNIT = re.compile(
    rf"[ ']?[{_WORD}]++(?=[ \n'{_SIGN}]|\Z)"
    rf"| ?[{_SIGN}]++(?=[ \n{_WORD}]|\Z)"
    rf"|\n(?=[{_WORD}])"
    r"|[\s\S][^ ]*(?: (?!\S)[^ ]*)*"
)
# A unit that is one word to GPT-2, of characters that its alphabet spells alike.
_PLAIN = re.compile(rf" ?(?:[A-Za-z]+|[0-9]+|[{_SIGN}]+)")
_WIDE = 16  # characters of a text's mean unit that make it one without words, as in Chinese
_LONG = 64  # characters of a unit that is hardly met again
_ROOM = 80_000_000  # bytes that the table may take, roughly:
_ENTRY = 180  # for each unit, beside its characters


class WordCache:
    """The ids, as bytes, of texts made of units, most of which were met before.

    `encode` knows those of any texts, `encode_word`, if there is one, those of a plain word at less cost.
    """

    def __init__(self, encode: Encode, encode_word: EncodeWord | None = None) -> None:
        self._encode = encode
        self._encode_word = encode_word
        self._known = _Known(self._ids)

    def __reduce__(self) -> tuple[type["WordCache"], tuple[Encode, EncodeWord | None]]:
        """A copy in another process begins with an empty table."""
        return WordCache, (self._encode, self._encode_word)

    def encode_batch(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text; those of texts without words come from `encode`, all at once."""
        found = [self._looked_up(text) for text in texts]
        left = [text for text, ids in zip(texts, found, strict=True) if ids is None]
        rest = iter(self._encode(left) if left else [])
        return [next(rest) if ids is None else ids for ids in found]

    def reach(self, text: str, size: int) -> tuple[int, str, int]:
        """The unit in which the first `size` bytes of a text's ids end: its place, itself, their part in it."""
        found, place = (0, "", 0), 0
        for unit in _UNIT.findall(text):
            if size <= 0:
                break
            ids = self._known[unit]
            if ids:
                found = (place, unit, size)
            size, place = size - len(ids), place + len(unit)
        return found

    def _looked_up(self, text: str) -> bytes | None:
        """The ids of a text, if it is one of words."""
        units = _UNIT.findall(text)
        if len(text) > _WIDE * len(units):
            return None
        return b"".join(map(self._known.__getitem__, units))

    def _ids(self, unit: str) -> bytes:
        if self._encode_word and _PLAIN.fullmatch(unit):
            return self._encode_word(unit)
        return self._encode([unit])[0]


class _Known(dict[str, bytes]):
    """The ids of units, found when they are first asked for and kept as long as there is room."""

    def __init__(self, find: EncodeWord) -> None:
        self._find = find
        self._taken = 0

    def __missing__(self, unit: str) -> bytes:
        ids = self._find(unit)
        if len(unit) <= _LONG:
            self[unit] = ids
            self._taken += _ENTRY + len(unit)
            if self._taken > _ROOM:
                self._forget()
        return ids

    def _forget(self) -> None:
        """Half of the table: what was met first is met most often."""
        for unit in list(self)[_ROOM // 2 // _ENTRY :]:
            self.pop(unit, None)
        self._taken = sum(_ENTRY + len(unit) for unit in list(self))


def cuttable(backend: Backend) -> bool:
    """Whether units have the same ids wherever they occur.

    A special token's text is plain text to us (see `SubwordTokenizer`), but one that was added as a
    word is looked for before anything is cut, and merges dropped at random are never the same.
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
