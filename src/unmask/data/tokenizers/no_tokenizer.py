"""A placeholder for the tokenizer of a model without one."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from numpy.typing import ArrayLike

from unmask.data.tokenizers.tokenizer import Ids, Tokenizer, TokenizerConfig
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary


class NoTokenizer(Tokenizer):
    """The vocabulary of a model without a tokenizer. Encoding and decoding raise an error."""

    kind = "absent"

    @classmethod
    def build(cls, config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
        """Raises an error: no configuration names this kind."""
        raise NotImplementedError("no configuration names this kind")

    @classmethod
    def parse(cls, files: Mapping[str, str]) -> Tokenizer:
        """The vocabulary in `vocabulary.json`."""
        return cls(Vocabulary(**json.loads(files["vocabulary.json"])["vocabulary"]))

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Raises an error."""
        self._refuse()

    def decode(self, ids: ArrayLike) -> str:
        """Raises an error."""
        self._refuse()

    def covered(self, text: str, tokens: int) -> int:
        """Raises an error."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnmaskError(
            "this model came without a tokenizer: put its files (tokenizer.json, or vocab.json and "
            "merges.txt) into its folder, or name one with 'unmask convert --tokenizer'"
        )
