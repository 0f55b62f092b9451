"""How good and how varied generated texts are; every figure with a standard error over the texts."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.evaluation.likelihood import nats_by_row
from unmask.methods.base import Method
from unmask.vocabulary import Vocabulary

Text = Sequence[int]  # tokens that a reader sees: no special ones


@dataclass(frozen=True)
class Figure:
    """A number, and one standard error of it over texts."""

    value: float
    error: float


@dataclass(frozen=True)
class Quality:
    """What is measured of a set of texts: likelihood under a judge, and diversity.

    A low `nats` alone says little: repeating one likely word reaches it too, and `entropy` gives
    that away.
    """

    nats: Figure  # per token, by the judge
    certificate: str  # what `nats` is of the judge's true value: "exact" or "upper"
    entropy: Figure  # of the tokens of a text, in nats
    distinct_2: Figure
    repetition: Figure
    tokens: int  # that the judge read, BOS and EOS too


def measure(
    texts: Sequence[Text], judge: Method, length: int, *, draws: int = 8, seed: int = 0
) -> Quality:
    """Texts as a judge that reads `length` tokens sees them, and how varied they are."""
    if not texts:
        raise UnmaskError("there is no text to measure")
    nats, tokens = judged(texts, judge, length, draws=draws, seed=seed)
    return Quality(
        nats=nats,
        certificate=judge.certificate,
        entropy=mean([token_entropy(text) for text in texts]),
        distinct_2=distinct(texts),
        repetition=mean([repetition(text) for text in texts]),
        tokens=tokens,
    )


def visible(ids: Sequence[int], vocabulary: Vocabulary, labels: Collection[int] = ()) -> list[int]:
    """The tokens that a reader sees: behind BOS or a class, up to EOS, without special ones."""
    v = vocabulary
    framed = bool(ids) and (ids[0] == v.bos_id or ids[0] in labels)
    body = list(ids[1:] if framed else ids)  # GPT-2's BOS is its EOS
    if v.eos_id in body:
        body = body[: body.index(v.eos_id)]
    return [token for token in body if token not in (v.mask_id, v.pad_id, v.bos_id)]


# Diversity


def token_entropy(text: Text) -> float:
    """Entropy in nats of the token counts of one text; it grows with the length of the text."""
    total = len(text)
    return math.fsum(count / total * math.log(total / count) for count in Counter(text).values())


def repetition(text: Text, n: int = 4) -> float:
    """Share of a text's n-grams that it had before; 0 for a text without any."""
    grams = _grams(text, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def distinct(texts: Sequence[Text], n: int = 2) -> Figure:
    """Different n-grams of all texts as a share of their n-grams: low also when the texts are alike.

    The error is the jackknife's, which for a statistic like this is on average too large, not too
    small (Efron and Stein, 1981).
    """
    grams = [_grams(text, n) for text in texts]
    holders = Counter(gram for held in grams for gram in set(held))  # texts that hold a gram
    total = sum(map(len, grams))
    if not total:
        return Figure(1.0, 0.0)
    without = [  # the figure without one of the texts
        (len(holders) - sum(holders[gram] == 1 for gram in set(held))) / (total - len(held))
        for held in grams
        if len(held) < total
    ]
    error = mean(without).error * (len(without) - 1) if len(without) > 1 else math.inf
    return Figure(len(holders) / total, error)


def mean(values: Sequence[float]) -> Figure:
    """The mean and its standard error; one value says nothing about its error."""
    x = torch.tensor(values, dtype=torch.float64)
    return Figure(float(x.mean()), float(x.std()) / math.sqrt(len(x)) if len(x) > 1 else math.inf)


def _grams(text: Text, n: int) -> list[tuple[int, ...]]:
    return list(zip(*(text[start:] for start in range(n)), strict=False))


# Quality


def judged(
    texts: Sequence[Text], judge: Method, length: int, *, draws: int = 8, seed: int = 0
) -> tuple[Figure, int]:
    """Negative log-likelihood per token under a judge, and how many tokens it read.

    The error counts the difference between texts and the judge's own noise.
    """
    pieces = [framed(text, judge.vocabulary, length) for text in texts]
    if not any(pieces):
        raise UnmaskError("the texts are empty: there is nothing to measure")
    rows = _Padded([piece for text in pieces for piece in text])
    owner = torch.tensor([number for number, text in enumerate(pieces) for _ in text])
    terms = nats_by_row(judge, rows, draws=draws, seed=seed)
    nats = torch.stack(list(terms.values())).sum(0).mean(0)
    sums = torch.zeros(len(texts), 2, dtype=torch.float64)  # nats and tokens of each text
    sums.index_add_(0, owner, torch.stack([nats, rows.lengths.double()], 1))
    tokens = int(sums[:, 1].sum())
    average = float(sums[:, 0].sum()) / tokens
    # a ratio of two sums over texts, each text a cluster of tokens
    residuals = sums[:, 0] - average * sums[:, 1]
    n = len(texts)
    error = math.sqrt(n / (n - 1) * float(residuals.square().sum())) if n > 1 else math.inf
    return Figure(average, error / tokens), tokens


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
