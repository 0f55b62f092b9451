"""The table of rows, the totals of their text, and the resume position of a packing."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unmask.data.documents.read_errors import ReadErrors
from unmask.data.tokenizers.tokenizer import Ids, encoded

Table = NDArray[np.integer]  # [rows, 1 + length]; for pairs and chats [rows, 2 + length]


@dataclass
class Totals:
    """Totals over all rows: valid tokens with BOS and EOS, bytes and characters of text.

    For pairs, tokens and text are those of the targets, each with one EOS; for chats, of the answers.
    """

    rows: int = 0
    tokens: int = 0
    bytes: int = 0
    characters: int = 0
    left_out: int = 0  # pairs too long for a row, chats without an answer within it
    cut: int = 0  # chats longer than a row
    faults: ReadErrors = field(default_factory=ReadErrors)  # read errors of the corpus

    def add_text(self, text: str, sign: int = 1) -> None:
        """Adds the bytes and characters of a text; subtracts them if `sign` is -1."""
        self.bytes += sign * len(encoded(text))
        self.characters += sign * len(text)

    def subtract_ignored(self, count: int) -> None:
        """Subtracts tokens without loss, such as N of DNA, which are one character each."""
        self.tokens -= count
        self.bytes -= count
        self.characters -= count

    def add_rows(self, counts: Table) -> None:
        """Adds rows and their tokens; `counts` are the columns before the tokens."""
        self.rows += len(counts)
        self.tokens += int(tokens_of(counts).sum())


def tokens_of(counts: Table) -> Ids:
    """The number of predicted tokens of each row: valid tokens less given ones."""
    return counts[:, 0] - counts[:, 1:].sum(1)


@dataclass
class Place:
    """The resume position of a packing: finished pieces, and finished tokens of the next piece."""

    pieces: int = 0
    tokens: int = 0
    texts: list[str] = field(default_factory=list)  # in the totals, but read again on resuming

    def settled(self, totals: Totals) -> Totals:
        """The totals without the texts that are read again on resuming."""
        settled = replace(totals)
        for text in self.texts:
            settled.add_text(text, sign=-1)
        return settled
