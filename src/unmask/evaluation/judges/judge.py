"""The judge protocol, its samples and scores, and an unmask model as a judge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from unmask.likelihood.estimate import nats_by_row
from unmask.methods.method import Method
from unmask.vocabulary import Vocabulary

Text = Sequence[int]  # tokens without special ones


@dataclass(frozen=True)
class Sample:
    """A text to judge, as tokens of the model that generated it and as a string."""

    ids: list[int]  # without special tokens
    text: str  # with U+FFFD where the tokens are not UTF-8
    size: int | None = None  # bytes of the tokens; None if the tokenizer has no bytes

    def bytes(self, as_text: bool) -> int:
        """Number of bytes of the string, or of the tokens."""
        if as_text or self.size is None:
            return len(self.text.encode("utf-8", "replace"))
        return self.size


@dataclass(frozen=True)
class JudgeScores:
    """A judge's scores: the negative log-likelihood of each text,
    and its number of scored tokens.
    """

    nats: Float64[Tensor, "texts"]
    tokens: Int64[Tensor, "texts"]
    features: Float[Tensor, "texts width"] | None = None  # points that MAUVE clusters


class Judge(Protocol):
    """A model that scores texts, as strings (`reads_text`) or as tokens.

    `certificate` is "exact" for likelihoods and "upper" for bounds.
    """

    @property
    def reads_text(self) -> bool: ...

    @property
    def certificate(self) -> str: ...

    def read(self, samples: Sequence[Sample], seed: int = 0) -> JudgeScores:
        """The scores of all texts; a text without tokens has 0 nats."""


@dataclass(frozen=True)
class MethodJudge:
    """An unmask model as judge. It scores tokens, in rows of its length."""

    reads_text: ClassVar[bool] = False

    method: Method
    length: int
    draws: int = 8

    @property
    def certificate(self) -> str:
        return self.method.certificate

    def read(self, samples: Sequence[Sample], seed: int = 0) -> JudgeScores:
        """The scores of texts, in rows with BOS and EOS like training rows.
        BOS and EOS are not scored.
        """
        pieces = [framed(sample.ids, self.method.vocabulary, self.length) for sample in samples]
        sums = torch.zeros(len(samples), 2, dtype=torch.float64)  # nats and tokens of each text
        if any(pieces):
            rows = _Framed([piece for text in pieces for piece in text], self.method.vocabulary)
            text_of_row = torch.tensor([number for number, text in enumerate(pieces) for _ in text])
            terms = nats_by_row(self.method, rows, draws=self.draws, seed=seed)
            nats = torch.stack(list(terms.values())).sum(0).mean(0)
            sums.index_add_(0, text_of_row, torch.stack([nats, rows.counts.double()], 1))
        return JudgeScores(sums[:, 0], sums[:, 1].long())


def framed(text: Text, vocabulary: Vocabulary, length: int) -> list[list[int]]:
    """Rows of BOS, text and EOS with at most `length` tokens; a long text takes several rows.

    A text without tokens has no rows.
    """
    start = [] if vocabulary.bos_id is None else [vocabulary.bos_id]
    end = [] if vocabulary.eos_id is None else [vocabulary.eos_id]
    body = length - len(start) - len(end)
    return [[*start, *text[first : first + body], *end] for first in range(0, len(text), body)]


class _Framed:
    """Padded rows of BOS, text and EOS. BOS and EOS are given, and only the text is predicted."""

    def __init__(self, rows: Sequence[Sequence[int]], vocabulary: Vocabulary) -> None:
        self.lengths = torch.tensor([len(row) for row in rows])
        self._start = int(vocabulary.bos_id is not None)
        self._stop = self.lengths - int(vocabulary.eos_id is not None)
        self.counts = self._stop - self._start
        parts = [torch.tensor(row) for row in rows]
        self._x = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        self.bytes = self.characters = 0  # unused: no figure per byte is computed

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: range) -> tuple[Tensor, Tensor]:
        part = slice(rows.start, rows.stop)
        return self._x[part], self._positions < self.lengths[part, None]

    def given(self, rows: range) -> Tensor:
        """Mask of the given tokens: BOS, EOS and padding."""
        stop = self._stop[rows.start : rows.stop, None]
        return (self._positions < self._start) | (self._positions >= stop)

    def counted(self, rows: range) -> Tensor:
        """Number of text tokens of each row."""
        return self.counts[rows.start : rows.stop]

    @property
    def _positions(self) -> Tensor:
        return torch.arange(self._x.shape[1])
