"""The tokenizer of a model that came without one."""

from collections.abc import Sequence
from typing import NoReturn

from numpy.typing import ArrayLike

from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.errors import UnmaskError


class AbsentTokenizer(Tokenizer):
    """Knows how many ids there are, and no text: a network can be asked, but not in words."""

    kind = "absent"
    leading_space = False

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
