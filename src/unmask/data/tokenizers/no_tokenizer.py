"""The tokenizer of a model that came without one."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from numpy.typing import ArrayLike

from unmask.data.tokenizers.tokenizer import Ids, Tokenizer, TokenizerConfig
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary


class NoTokenizer(Tokenizer):
    """Knows how many ids there are, and no text: a network can be asked, but not in words."""

    kind = "absent"

    @classmethod
    def build(cls, config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
        """Nothing that could be done."""
        raise NotImplementedError("no configuration names this kind")

    @classmethod
    def parse(cls, files: Mapping[str, str]) -> Tokenizer:
        """The size and the special ids that a file tells."""
        return cls(Vocabulary(**json.loads(files["vocabulary.json"])["vocabulary"]))

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Nothing that could be done."""
        self._say()

    def decode(self, ids: ArrayLike) -> str:
        """Nothing that could be done."""
        self._say()

    def covered(self, text: str, tokens: int) -> int:
        """Nothing that could be done."""
        self._say()

    def _say(self) -> NoReturn:
        raise UnmaskError(
            "this model came without a tokenizer: put its files (tokenizer.json, or vocab.json and "
            "merges.txt) into its folder, or give one to 'unmask convert --tokenizer'"
        )
