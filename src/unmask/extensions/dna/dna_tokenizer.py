"""The tokenizer of DNA: single bases, or k-mers, with the complement of each token."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from unmask.data.tokenizers.tokenizer import TOKENIZERS, Ids, Tokenizer, TokenizerConfig
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.vocabulary import Vocabulary

LETTERS = "ACGTN"
AMBIGUOUS = "RYSWKMBDHV"  # IUPAC codes of several bases, encoded as N
_N = LETTERS.index("N")
_NONE = 255  # in the table of codes: no base
_PAIRS = str.maketrans("ACGT", "TGCA")
LONGEST = 6  # bases of a k-mer


def reverse_complement(bases: str) -> str:
    """The other strand, in its reading direction.

    Args:
        bases: DNA in upper case; letters other than A, C, G and T stay.

    Returns:
        The complements in reverse order.

    Example:
        >>> reverse_complement("AACGN")
        'NCGTT'
    """
    return bases.translate(_PAIRS)[::-1]


@TOKENIZERS.register("dna")
class DnaTokenizer(Tokenizer):
    """The bases A, C, G, T and N of DNA; lower case becomes upper case, IUPAC codes become N.

    With k above 1 a text is cut into k-mers. A k-mer with N, and a shorter one at the end, is
    encoded as single bases. No loss is computed at N, and N is never generated.
    """

    @dataclass(frozen=True)
    class Config(TokenizerConfig):
        kind: str = "dna"
        k: int = option(1, ge=1, le=LONGEST, help="Bases of a token.")

    def __init__(self, k: int = 1, ends: bool = True) -> None:
        self.k, self.ends = k, ends
        mers = ("".join(mer) for mer in product("ACGT", repeat=k))
        self.tokens = [*LETTERS, *(mers if k > 1 else ())]
        super().__init__(_vocabulary(self.tokens, ends))

    @classmethod
    def build(cls, config: Config, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer of bases or k-mers."""
        return cls(config.k)

    @classmethod
    def parse(cls, files: Mapping[str, str]) -> Tokenizer:
        """The tokenizer of `dna.json`."""
        state = json.loads(files["dna.json"])
        k, ends = state["k"], state["ends"]
        if type(k) is not int or not 1 <= k <= LONGEST or type(ends) is not bool:
            raise UnmaskError(f"dna.json needs k from 1 to {LONGEST} and ends true or false")
        return cls(k, ends)

    def without_ends(self) -> "DnaTokenizer":
        """The tokenizer without BOS and EOS, for windows of a genome."""
        return DnaTokenizer(self.k, ends=False)

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text; an error for a letter that is no base."""
        return [self._grouped(_codes(text)) for text in texts]

    def _grouped(self, codes: Ids) -> Ids:
        """The ids of k-mers in place of the codes of their bases."""
        groups = len(codes) // self.k
        if self.k == 1 or not groups:
            return codes
        bases = codes[: groups * self.k].reshape(groups, self.k)
        whole = (bases != _N).all(1)
        ids, kept = bases.astype(np.uint16), np.ones(bases.shape, bool)
        powers = 4 ** np.arange(self.k)[::-1]
        ids[whole, 0] = len(LETTERS) + bases[whole].astype(np.int64) @ powers
        kept[whole, 1:] = False
        return np.concatenate([ids[kept], codes[groups * self.k :]])

    def decode(self, ids: ArrayLike) -> str:
        """The bases of ids; special ids are dropped."""
        return "".join([self.tokens[token] for token in self.content(ids).tolist()])

    def covered(self, text: str, tokens: int) -> int:
        """The number of bases of a text that its first `tokens` tokens cover."""
        return sum(len(self.tokens[token]) for token in self.encode(text)[:tokens])

    @property
    def ignored_id(self) -> int | None:
        """The id of N."""
        return _N

    def pieces(self) -> list[bytes | None] | None:
        """The bytes of every id, None for special ids."""
        known: list[bytes | None] = [token.encode() for token in self.tokens]
        return known + [None] * (self.vocabulary.size - len(known))

    def backend(self) -> Backend | None:
        """A word-level model of single bases; None for k-mers."""
        if self.k > 1:
            return None
        ids = {token: index for index, token in enumerate(self.tokens)}
        backend = Backend(models.WordLevel(ids, unk_token="N"))
        upper = [normalizers.Replace(letter.lower(), letter) for letter in LETTERS]
        backend.normalizer = normalizers.Sequence(upper)
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        backend.decoder = decoders.Fuse()
        return backend

    def files(self) -> dict[str, str]:
        """The content of the files that `save` writes, by name: everything that affects ids."""
        settings = {"k": self.k, "ends": self.ends}
        return super().files() | {"dna.json": json.dumps(settings) + "\n"}


def _vocabulary(tokens: list[str], ends: bool) -> Vocabulary:
    """The ids of the tokens, then BOS and EOS if there are `ends`, PAD and MASK."""
    ids = {token: index for index, token in enumerate(tokens)}
    count = len(tokens) + 2 * ends
    complements = [ids[reverse_complement(token)] for token in tokens]
    return Vocabulary(
        count + 2,
        mask_id=count + 1,
        pad_id=count,
        bos_id=len(tokens) if ends else None,
        eos_id=len(tokens) + 1 if ends else None,
        complement_ids=(*complements, *range(len(tokens), count + 2)),
    )


@lru_cache(maxsize=1)
def _table() -> NDArray[np.uint8]:
    """The code of each byte; `_NONE` for a byte that is no base."""
    table = np.full(256, _NONE, np.uint8)
    for letters, code in [*((base, i) for i, base in enumerate(LETTERS)), (AMBIGUOUS, _N)]:
        for letter in letters:
            table[[ord(letter), ord(letter.lower())]] = code
    return table


def _codes(text: str) -> NDArray[np.uint8]:
    """The code of each base of a text."""
    codes = _table()[np.frombuffer(text.encode("ascii", "replace"), np.uint8)]
    wrong = np.flatnonzero(codes == _NONE)
    if len(wrong):
        letter = text[wrong[0]]
        why = "it is RNA, write T" if letter in "Uu" else "write A, C, G, T, N or an IUPAC code"
        raise UnmaskError(f"character {wrong[0] + 1} of a sequence is {letter!r}: {why}")
    return codes
