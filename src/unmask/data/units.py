"""Ids looked up: a text is cut where no token reaches across, and each part is encoded once.

A subword tokenizer splits a text into words before it looks at its vocabulary. The places below lie
between words of both usual rules, GPT-2's and BERT's, whatever else is in the text. What stands between
two of them, a unit, has the same ids wherever it occurs, and a text is mostly units met before.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

Encode = Callable[[list[str]], list[bytes]]

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
_NEW = 4  # texts of which a quarter is new are not worth looking up
_ROOM = 80_000_000  # bytes that the table may take, roughly:
_ENTRY = 180  # for each unit, beside its characters
_LONG = 64  # characters of a unit that is hardly met again


class Units:
    """The ids, as bytes, of texts made of units met before; `encode` knows those of new ones."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._known: dict[str, bytes] = {}
        self._taken = 0

    def __reduce__(self) -> tuple[type["Units"], tuple[Encode]]:
        """A copy in another process begins with an empty table."""
        return Units, (self._encode,)

    def encode_batch(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text; texts that are mostly new are encoded as they are."""
        known = self._known
        cut = [_UNIT.findall(text) for text in texts]
        new = _new(chain.from_iterable(cut), known)
        if _NEW * sum(map(len, new)) > sum(map(len, texts)):
            return self._encode(list(texts))
        self._learn(new, known)
        return [b"".join(map(known.__getitem__, units)) for units in cut]

    def reach(self, text: str, size: int) -> tuple[int, str, int]:
        """The unit in which the first `size` bytes of a text's ids end: its place, itself, their part in it."""
        known, units = self._known, _UNIT.findall(text)
        self._learn(_new(units, known), known)
        found, place = (0, "", 0), 0
        for unit in units:
            if size <= 0:
                break
            if known[unit]:
                found = (place, unit, size)
            size, place = size - len(known[unit]), place + len(unit)
        return found

    def _learn(self, new: list[str], known: dict[str, bytes]) -> None:
        """Encode units and keep them."""
        known.update(zip(new, self._encode(new), strict=True))
        self._taken += sum(map(len, new)) + _ENTRY * len(new)
        if self._taken > _ROOM:
            self._forget(known)

    def _forget(self, known: dict[str, bytes]) -> None:
        """Go on with half a table: the units met first, which are met most often."""
        # In a new table, since this one may be in use.
        kept = [entry for entry in list(known.items()) if len(entry[0]) <= _LONG]
        self._known = dict(kept[: _ROOM // 2 // _ENTRY])
        self._taken = sum(_ENTRY + len(unit) for unit in self._known)


def _new(units: Iterable[str], known: dict[str, bytes]) -> list[str]:
    """The units that are not known, in the order in which they are met."""
    return [unit for unit in dict.fromkeys(units) if unit not in known]


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
