"""Who measures texts: what a judge is asked, and a model of ours as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from unmask.evaluation.likelihood import nats_by_row
from unmask.methods.base import Method
from unmask.vocabulary import Vocabulary

Text = Sequence[int]  # tokens that a reader sees: no special ones


@dataclass(frozen=True)
class Sample:
    """A text: the tokens of the model that wrote it, as a reader sees them, and what they spell."""

    ids: list[int]
    text: str


@dataclass(frozen=True)
class Reading:
    """What a judge made of texts: negative log-likelihoods, over how many of its own tokens."""

    nats: Float64[Tensor, "texts"]
    tokens: Int64[Tensor, "texts"]
    features: Float[Tensor, "texts width"] | None = None  # what MAUVE clusters


class Judge(Protocol):
    """A model that reads texts. `certificate` says what its nats are: "exact", or "upper" for a bound."""

    @property
    def certificate(self) -> str: ...

    def read(self, samples: Sequence[Sample], seed: int = 0) -> Reading:
        """All texts; a text without tokens has no nats."""


@dataclass(frozen=True)
class MethodJudge:
    """A model of ours, which reads the tokens themselves, as many as its length at a time."""

    method: Method
    length: int
    draws: int = 8

    @property
    def certificate(self) -> str:
        return self.method.certificate

    def read(self, samples: Sequence[Sample], seed: int = 0) -> Reading:
        """Each text framed as training rows are; BOS and EOS count where the model writes them."""
        pieces = [framed(sample.ids, self.method.vocabulary, self.length) for sample in samples]
        sums = torch.zeros(len(samples), 2, dtype=torch.float64)  # nats and tokens of each text
        if any(pieces):
            rows = _Padded([piece for text in pieces for piece in text])
            owner = torch.tensor([number for number, text in enumerate(pieces) for _ in text])
            terms = nats_by_row(self.method, rows, draws=self.draws, seed=seed)
            nats = torch.stack(list(terms.values())).sum(0).mean(0)
            sums.index_add_(0, owner, torch.stack([nats, rows.lengths.double()], 1))
        return Reading(sums[:, 0], sums[:, 1].long())


def framed(text: Text, vocabulary: Vocabulary, length: int) -> list[list[int]]:
    """Rows of at most `length` tokens as training packs them: BOS text EOS, going on in the next row."""
    start = [] if vocabulary.bos_id is None else [vocabulary.bos_id]
    end = [] if vocabulary.eos_id is None else [vocabulary.eos_id]
    body = length - len(start) - len(end)
    pieces = [text[first : first + body] for first in range(0, max(len(text), 1), body)]
    return [row for piece in pieces if (row := [*start, *piece, *end])]


class _Padded:
    """Rows of their own lengths, side by side."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.lengths = torch.tensor([len(row) for row in rows])
        parts = [torch.tensor(row) for row in rows]
        self._x = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        self.bytes = self.characters = 0  # no figure per byte is asked for

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: range) -> tuple[Tensor, Tensor]:
        part = slice(rows.start, rows.stop)
        return self._x[part], torch.arange(self._x.shape[1]) < self.lengths[part, None]
