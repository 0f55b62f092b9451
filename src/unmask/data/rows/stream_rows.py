"""Rows of a stream, packed as its documents come and kept nowhere, and a loader that goes on from any row.

Rows come in the order of the documents: nothing is shuffled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int64
from torch import Tensor

from unmask.data.data_config import STREAMS
from unmask.data.rows.encode import in_this_process, pieces
from unmask.data.rows.packing import PACKERS
from unmask.data.rows.row_counts import Place, Table, Totals
from unmask.data.rows.token_rows import TEXT, Batch, Layout, Rows
from unmask.data.sources.corpus import Corpus
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError

_DOCUMENTS, _CHARACTERS = 64, 2**18  # that are packed at a time, at most
_FRUITLESS = 2**16  # documents without a row, after which there may never be one
_LARGEST = 2**48  # of a number in a file

Numbered = tuple[int, str]  # a document with its number in the stream


@dataclass(frozen=True)
class StreamPlace:
    """The place of the next row: packing began at a document, and so many rows of it are done."""

    batch: int = 0  # the number of the batch that begins there
    document: int = 0
    pieces: int = 0  # of the document, behind which packing began
    tokens: int = 0  # of the next piece
    rows: int = 0

    @classmethod
    def from_dict(cls, content: Any) -> "StreamPlace":
        """The place that a checkpoint holds; anybody may have written it."""
        names = asdict(cls())
        if not isinstance(content, Mapping) or content.keys() != names.keys():
            raise UnmaskError("the checkpoint does not hold the place of the stream")
        if not all(type(number) is int and 0 <= number < _LARGEST for number in content.values()):
            raise UnmaskError("the checkpoint holds a place that no stream has")
        return cls(**content)


class StreamRows:
    """Rows of a corpus without an end; one that has an end begins again behind it."""

    facts: ClassVar[dict[str, int]] = {"streams": 1}  # by which a resumed run knows its rows again
    amount = "a stream of rows"
    left_out = 0  # pairs that did not fit into a row are not counted

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        length: int,
        packing: str = "wrap",
        layout: Layout = TEXT,
    ) -> None:
        self.corpus, self.tokenizer, self.length = corpus, tokenizer, length
        self.packing, self.layout = packing, layout

    def rows(self, place: StreamPlace) -> Iterator[tuple[Table, StreamPlace]]:
        """Rows from a place on, each with the place behind it."""
        skipped = place.rows
        for begun, table in self._blocks(replace(place, rows=0)):
            for number, row in enumerate(table, start=1):
                if skipped:
                    skipped -= 1
                else:
                    yield row, replace(begun, rows=number)

    def _blocks(self, place: StreamPlace) -> Iterator[tuple[StreamPlace, Table]]:
        """Tables of rows, each with the place where its packing begins."""
        documents, pending, fruitless = self._documents(place.document), list[Numbered](), 0
        encode = in_this_process(self.tokenizer)
        while True:
            more = list(_block(documents))
            pending += more
            inner, texts = Place(place.pieces, place.tokens), [text for _, text in pending]
            made = PACKERS[self.packing](
                texts, self.tokenizer, self.length, Totals(), inner, encode
            )
            table = np.concatenate(list(made))
            yield place, table
            fruitless = 0 if len(table) else fruitless + len(more)
            if fruitless > _FRUITLESS:
                raise UnmaskError(
                    f"{fruitless:,} documents of {self.corpus.name} make no row of {self.length} "
                    "tokens: set another data.length or data.packing"
                )
            pending, place = self._behind(pending, inner)

    def _behind(self, block: list[Numbered], inner: Place) -> tuple[list[Numbered], StreamPlace]:
        """The documents of a block that reach beyond its rows, and the place where they do."""
        done = inner.pieces
        for index, (number, text) in enumerate(block):
            cut = len(list(pieces([text]))) if self.packing in STREAMS else 1
            if done < cut:
                return block[index:], StreamPlace(0, number, done, inner.tokens)
            done -= cut
        return [], StreamPlace(0, block[-1][0] + 1)

    def _documents(self, start: int) -> Iterator[Numbered]:
        """The documents from a number on, blank ones left out, over and over."""
        found = True
        while found:
            found = start > 0
            for number, document in enumerate(self.corpus.documents(start), start=start):
                if document and not document.isspace():
                    found = True
                    yield number, document
            start = 0
        raise UnmaskError(f"{self.corpus.name} holds no text")


class StreamLoader:
    """Batches of a stream one after the other; the newest one may be asked for again.

    Each process of a group reads the whole stream and takes its rows of the batch.
    """

    def __init__(self, rows: StreamRows, batch: int, seed: int) -> None:
        self.rows, self.size, self.seed = rows, batch, seed
        self.go_to(asdict(StreamPlace()))

    def go_to(self, place: Any) -> None:
        """Goes on from a place that `place` gave."""
        self._place = StreamPlace.from_dict(place)
        self._coming = self.rows.rows(self._place)
        self._held: Rows | None = None

    @property
    def place(self) -> dict[str, int]:
        """The place behind the newest batch, for a checkpoint."""
        return asdict(self._place)

    def batch(self, step: int, part: range) -> Batch:
        """The rows `part`, numbered 0 to batch - 1, of the global batch of a step."""
        return self._at(step)[part]

    def given(self, step: int, part: range) -> Bool[Tensor, "part length"] | None:
        """Tokens of those rows that are seen and not predicted; None if the rows are no pairs."""
        return self._at(step).given(part)

    def counted(self, step: int, part: range) -> Int64[Tensor, "part"]:
        """Tokens of each of those rows that the mean loss is per."""
        return self._at(step).counted(part)

    def count(self, step: int, part: range) -> int:
        """Tokens of all those rows that the mean loss is per."""
        return int(self.counted(step, part).sum())

    def _at(self, step: int) -> Rows:
        """The rows of a step; those of the steps before it are read and dropped."""
        while self._held is None or self._place.batch <= step:
            rows = list(islice(self._coming, self.size))
            table = np.stack([row for row, _ in rows])
            self._held = Rows(table, Totals(), self.rows.layout)
            self._place = replace(rows[-1][1], batch=self._place.batch + 1)
        if self._place.batch != step + 1:
            raise IndexError(f"step {step} of a stream that stands at {self._place.batch}")
        return self._held


def _block(documents: Iterator[Numbered]) -> Iterator[Numbered]:
    """The next documents, as many as are packed at a time."""
    characters = 0
    for number, text in islice(documents, _DOCUMENTS):
        yield number, text
        characters += len(text)
        if characters >= _CHARACTERS:
            break
