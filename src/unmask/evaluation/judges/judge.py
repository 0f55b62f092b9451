"""Who measures texts: what a judge is asked, and a model of ours as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from unmask.likelihood.estimate import nats_by_row
from unmask.methods.method import Method
from unmask.vocabulary import Vocabulary

Text = Sequence[int]  # tokens that a reader sees: no special ones


@dataclass(frozen=True)
class Sample:
    """A text: the tokens of the model that wrote it, as a reader sees them, and what they spell."""

    ids: list[int]
    text: str  # with U+FFFD where the tokens are not UTF-8
    size: int | None = None  # bytes that the tokens stand for, where the tokenizer can tell

    def bytes(self, as_text: bool) -> int:
        """How many bytes there are to read: the text's, or those of the tokens themselves."""
        if as_text or self.size is None:
            return len(self.text.encode("utf-8", "replace"))
        return self.size


@dataclass(frozen=True)
class JudgeScores:
    """What a judge made of texts: negative log-likelihoods, over how many of its own tokens."""

    nats: Float64[Tensor, "texts"]
    tokens: Int64[Tensor, "texts"]
    features: Float[Tensor, "texts width"] | None = None  # what MAUVE clusters


class Judge(Protocol):
    """A model that reads texts, or else their tokens.

    `certificate` says what its nats are: "exact", or "upper" for a bound.
    """

    @property
    def reads_text(self) -> bool: ...

    @property
    def certificate(self) -> str: ...

    def read(self, samples: Sequence[Sample], seed: int = 0) -> JudgeScores:
        """All texts; a text without tokens has no nats."""


@dataclass(frozen=True)
class MethodJudge:
    """A model of ours, which reads the tokens themselves, as many as its length at a time."""

    reads_text: ClassVar[bool] = False

    method: Method
    length: int
    draws: int = 8

    @property
    def certificate(self) -> str:
        return self.method.certificate

    def read(self, samples: Sequence[Sample], seed: int = 0) -> JudgeScores:
        """Each text framed as training rows are; BOS and EOS are given: neither costs or counts."""
        pieces = [framed(sample.ids, self.method.vocabulary, self.length) for sample in samples]
        sums = torch.zeros(len(samples), 2, dtype=torch.float64)  # nats and tokens of each text
        if any(pieces):
            rows = _Framed([piece for text in pieces for piece in text], self.method.vocabulary)
            owner = torch.tensor([number for number, text in enumerate(pieces) for _ in text])
            terms = nats_by_row(self.method, rows, draws=self.draws, seed=seed)
            nats = torch.stack(list(terms.values())).sum(0).mean(0)
            sums.index_add_(0, owner, torch.stack([nats, rows.counts.double()], 1))
        return JudgeScores(sums[:, 0], sums[:, 1].long())


def framed(text: Text, vocabulary: Vocabulary, length: int) -> list[list[int]]:
    """Rows of at most `length` tokens as training packs them: BOS text EOS, going on in the next row.

    A text without tokens has no rows.
    """
    start = [] if vocabulary.bos_id is None else [vocabulary.bos_id]
    end = [] if vocabulary.eos_id is None else [vocabulary.eos_id]
    body = length - len(start) - len(end)
    return [[*start, *text[first : first + body], *end] for first in range(0, len(text), body)]


class _Framed:
    """Framed rows of their own lengths, side by side; what frames a text is given."""

    def __init__(self, rows: Sequence[Sequence[int]], vocabulary: Vocabulary) -> None:
        self.lengths = torch.tensor([len(row) for row in rows])
        self._start = int(vocabulary.bos_id is not None)
        self._stop = self.lengths - int(vocabulary.eos_id is not None)
        self.counts = self._stop - self._start
        parts = [torch.tensor(row) for row in rows]
        self._x = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        self.bytes = self.characters = 0  # no figure per byte is asked for

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: range) -> tuple[Tensor, Tensor]:
        part = slice(rows.start, rows.stop)
        return self._x[part], self._places < self.lengths[part, None]

    def given(self, rows: range) -> Tensor:
        """BOS and EOS."""
        stop = self._stop[rows.start : rows.stop, None]
        return (self._places < self._start) | (self._places >= stop)

    def counted(self, rows: range) -> Tensor:
        """The tokens of the text."""
        return self.counts[rows.start : rows.stop]

    @property
    def _places(self) -> Tensor:
        return torch.arange(self._x.shape[1])
