"""Rows of a stream, packed on the fly without a cache, and a loader that resumes at any row.

Rows keep the order of the documents; a stream is not shuffled.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int64
from torch import Tensor

from unmask.data.data_config import STREAMS
from unmask.data.rows.encode import PackingJob, in_this_process, pieces
from unmask.data.rows.packing import PACKERS
from unmask.data.rows.row_counts import Place, Table, Totals
from unmask.data.rows.token_rows import TEXT, Batch, Layout, Rows
from unmask.data.sources.corpus import Corpus
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError

_DOCUMENTS, _CHARACTERS = 64, 2**18  # most that are packed at a time
_MOST_WITHOUT_ROW = 2**16  # documents that give no row before this is an error
_LARGEST = 2**48  # limit of the numbers in a checkpoint

Numbered = tuple[int, str]  # a document with its index in the stream


@dataclass(frozen=True)
class StreamPosition:
    """The position of the next row in a stream: the start of its block,
    and the row in the block.
    """

    batch: int = 0  # index of the next batch
    document: int = 0  # index of the document in which the block starts
    pieces: int = 0  # pieces of that document before the block
    tokens: int = 0  # tokens of the next piece before the block
    rows: int = 0  # rows of the block before the next row

    @classmethod
    def from_dict(cls, content: Any) -> "StreamPosition":
        """The position stored in a checkpoint. The content is untrusted, so it is checked."""
        names = asdict(cls())
        if not isinstance(content, Mapping) or content.keys() != names.keys():
            raise UnmaskError("the checkpoint has no position of the stream: it is of another run")
        if not all(type(number) is int and 0 <= number < _LARGEST for number in content.values()):
            raise UnmaskError("the checkpoint has an impossible position of the stream")
        return cls(**content)


class StreamRows:
    """Endless rows of a stream. A stream that ends starts again from its first document."""

    facts: ClassVar[dict[str, int]] = {"streams": 1}  # must be equal when a run resumes
    amount = "a stream of rows"
    left_out = 0  # pairs too long for a row are not counted

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

    def rows(self, position: StreamPosition) -> Iterator[tuple[Table, StreamPosition]]:
        """The rows from a position on, each with the position after it."""
        skipped = position.rows
        for start, table in self._blocks(replace(position, rows=0)):
            for number, row in enumerate(table, start=1):
                if skipped:
                    skipped -= 1
                else:
                    yield row, replace(start, rows=number)

    def _blocks(self, position: StreamPosition) -> Iterator[tuple[StreamPosition, Table]]:
        """Blocks of packed rows, each with the position where its packing starts."""
        documents, pending, without_row = self._documents(position.document), list[Numbered](), 0
        encode = in_this_process(self.tokenizer)
        while True:
            new = list(_next_documents(documents))
            pending += new
            inner, texts = Place(position.pieces, position.tokens), [text for _, text in pending]
            job = PackingJob(texts, self.tokenizer, self.length, Totals(), inner, encode)
            table = np.concatenate(list(PACKERS[self.packing](job)))
            yield position, table
            without_row = 0 if len(table) else without_row + len(new)
            if without_row > _MOST_WITHOUT_ROW:
                raise UnmaskError(
                    f"{without_row:,} documents of {self.corpus.name} give no row of {self.length} "
                    "tokens: set another data.length or data.packing"
                )
            pending, position = self._unused(pending, inner)

    def _unused(self, block: list[Numbered], inner: Place) -> tuple[list[Numbered], StreamPosition]:
        """The documents of a block that its rows do not use up,
        and the position where they begin.
        """
        done = inner.pieces
        for index, (number, text) in enumerate(block):
            count = len(list(pieces([text]))) if self.packing in STREAMS else 1
            if done < count:
                return block[index:], StreamPosition(0, number, done, inner.tokens)
            done -= count
        return [], StreamPosition(0, block[-1][0] + 1)

    def _documents(self, start: int) -> Iterator[Numbered]:
        """The documents from index `start` on, without blank ones, repeated endlessly."""
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
    """Batches of a stream in order. Only the newest batch can be read again.

    Each process reads the whole stream and takes its own rows of each batch.
    """

    def __init__(self, rows: StreamRows, batch: int, seed: int) -> None:
        self.rows, self.size, self.seed = rows, batch, seed
        self.go_to(asdict(StreamPosition()))

    def go_to(self, position: Any) -> None:
        """Resumes at a position that the property `position` returned."""
        self._position = StreamPosition.from_dict(position)
        self._next_rows = self.rows.rows(self._position)
        self._newest: Rows | None = None

    @property
    def position(self) -> dict[str, int]:
        """The position after the newest batch, for a checkpoint."""
        return asdict(self._position)

    def batch(self, step: int, part: range) -> Batch:
        """Tokens and validity of the rows `part` (0 to batch - 1) of a step's global batch."""
        return self._at(step)[part]

    def given(self, step: int, part: range) -> Bool[Tensor, "part length"] | None:
        """True at tokens that are given and not predicted; None if the rows are not pairs."""
        return self._at(step).given(part)

    def counted(self, step: int, part: range) -> Int64[Tensor, "part"]:
        """The number of tokens in each row over which the loss is averaged."""
        return self._at(step).counted(part)

    def count(self, step: int, part: range) -> int:
        """The number of tokens in these rows over which the loss is averaged."""
        return int(self.counted(step, part).sum())

    def _at(self, step: int) -> Rows:
        """The rows of a step. Rows before that step are read and dropped."""
        while self._newest is None or self._position.batch <= step:
            rows = list(islice(self._next_rows, self.size))
            table = np.stack([row for row, _ in rows])
            self._newest = Rows(table, Totals(), self.rows.layout)
            self._position = replace(rows[-1][1], batch=self._position.batch + 1)
        if self._position.batch != step + 1:
            raise IndexError(f"step {step} of a stream that is at step {self._position.batch}")
        return self._newest


def _next_documents(documents: Iterator[Numbered]) -> Iterator[Numbered]:
    """The next documents, up to the block limits."""
    characters = 0
    for number, text in islice(documents, _DOCUMENTS):
        yield number, text
        characters += len(text)
        if characters >= _CHARACTERS:
            break
