"""What rows are and cover: a table of them, the totals of their text, and where a packing stands."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unmask.data.documents.read_errors import ReadErrors
from unmask.data.tokenizers.tokenizer import Ids, encoded

Table = NDArray[np.integer]  # [rows, 1 + length], of pairs [rows, 2 + length]


@dataclass
class Totals:
    """What rows cover: valid tokens (BOS and EOS too), and bytes and characters of text.

    Of pairs it is the targets, each with one EOS.
    """

    rows: int = 0
    tokens: int = 0
    bytes: int = 0
    characters: int = 0
    left_out: int = 0  # pairs that do not fit into a row
    faults: ReadErrors = field(default_factory=ReadErrors)  # what of the corpus could not be read

    def add_text(self, text: str, sign: int = 1) -> None:
        """Count a text, or take it back."""
        self.bytes += sign * len(encoded(text))
        self.characters += sign * len(text)

    def add_rows(self, counts: Table) -> None:
        """Count rows and their tokens; `counts` is what stands in front of them."""
        self.rows += len(counts)
        self.tokens += int(tokens_of(counts).sum())


def tokens_of(counts: Table) -> Ids:
    """The tokens of rows that count: the valid ones, less those that are given."""
    return counts[:, 0] - counts[:, 1:].sum(1)


@dataclass
class Place:
    """Where a packing stands, for another to go on: the pieces, and tokens of the next, behind it."""

    pieces: int = 0
    tokens: int = 0
    texts: list[str] = field(default_factory=list)  # counted already, but to be read again

    def settled(self, totals: Totals) -> Totals:
        """The totals of what is behind this place."""
        settled = replace(totals)
        for text in self.texts:
            settled.add_text(text, sign=-1)
        return settled
