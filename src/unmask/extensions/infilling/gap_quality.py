"""Metrics of infilling: accuracy of filled gaps, and a judge's nats in and after the gap."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from unmask.errors import UnmaskError
from unmask.evaluation.judges.causal_lm import CausalJudge
from unmask.evaluation.judges.judge import Text
from unmask.evaluation.metrics.bootstrap import Figure, mean, ratio, share
from unmask.likelihood.perplexity import Source, rows_of
from unmask.model import Model
from unmask.vocabulary import Vocabulary

_BLOCK = 256  # rows read at a time


@dataclass(frozen=True)
class Gap:
    """A text as a training row, and the span of its gap."""

    ids: list[int]
    start: int
    stop: int

    def filled(self, tokens: Text) -> list[int]:
        """The text with `tokens` in the gap."""
        return [*self.ids[: self.start], *tokens, *self.ids[self.stop :]]


@dataclass(frozen=True)
class Filling:
    """Quality of the fillings of gaps.

    A causal judge reads the filled text. `gap` is its nats per token in the filling. `after` is its
    nats per token in the original text behind the gap,
    and is high if the filling does not fit that text.
    """

    exact: Figure  # share of fillings that equal the original tokens
    accuracy: Figure  # share of tokens that are the original ones
    gap: Figure | None  # nats per token of the judge in the gap
    after: Figure | None  # nats per token of the judge after the gap


def middle_gap(row: Text, vocabulary: Vocabulary, labels: Sequence[int], width: int) -> Gap | None:
    """A gap in the middle of a row's first text, with at least `width` tokens on either side.

    None if the text is too short.
    """
    ids = list(row)
    lead = int(bool(ids) and (ids[0] == vocabulary.bos_id or ids[0] in labels))
    body = ids[lead:]
    size = body.index(vocabulary.eos_id) if vocabulary.eos_id in body else len(body)
    if size < 3 * width:
        return None
    start = lead + (size - width) // 2
    return Gap(ids[: lead + size + 1], start, start + width)  # includes the EOS of the text


def held_out_gaps(
    model: Model, n: int, width: int, say: Callable[[str], None], data: Source = None
) -> list[Gap]:
    """Gaps in the first `n` held-out texts that are long enough."""
    rows = rows_of(model, data)
    labels = list(model.tokenizer.labels.values())
    found: list[Gap] = []
    for first in range(0, len(rows), _BLOCK):
        x, valid = rows[range(first, min(first + _BLOCK, len(rows)))]
        texts = [row[there].tolist() for row, there in zip(x, valid, strict=True)]
        gaps = [middle_gap(text, model.tokenizer.vocabulary, labels, width) for text in texts]
        found += [gap for gap in gaps if gap is not None]
        if len(found) >= n:
            return found[:n]
    which = "validation text" if data is None else "given text"
    if not found:
        raise UnmaskError(
            f"no {which} has the {3 * width} tokens that a gap of {width} needs: give a smaller gap"
        )
    say(f"the {which} has {len(found)} texts of {3 * width} tokens or more, not {n}: using these")
    return found


def score(
    gaps: Sequence[Gap],
    fillings: Sequence[Text],
    decode: Callable[[list[int]], str],
    judge: CausalJudge | None,
    seed: int = 0,
) -> Filling:
    """Scores fillings against the original tokens and with a judge."""
    right = [
        [a == b for a, b in zip(gap.ids[gap.start : gap.stop], tokens, strict=True)]
        for gap, tokens in zip(gaps, fillings, strict=True)
    ]
    found = None
    if judge is not None:
        whole = [gap.filled(tokens) for gap, tokens in zip(gaps, fillings, strict=True)]
        found = _judged(gaps, whole, decode, judge, seed)
    return Filling(
        exact=share([all(same) for same in right]),
        accuracy=mean([sum(same) / len(same) for same in right], seed),
        gap=found and found[0],
        after=found and found[1],
    )


def _judged(
    gaps: Sequence[Gap],
    texts: Sequence[list[int]],
    decode: Callable[[list[int]], str],
    judge: CausalJudge,
    seed: int,
) -> tuple[Figure, Figure]:
    """The judge's nats per token in the gap and after it.
    A token belongs to the part in which it ends.
    """
    # [texts, in the gap or after it, nats or tokens]
    sums = torch.zeros(len(texts), 2, 2, dtype=torch.float64)
    for number, read in enumerate(judge.read_texts([decode(text) for text in texts])):
        start = len(decode(texts[number][: gaps[number].start]))
        stop = len(decode(texts[number][: gaps[number].stop]))
        ends = torch.tensor(read.ends)
        for part, belongs in enumerate([(ends > start) & (ends <= stop), ends > stop]):
            sums[number, part] = torch.stack([read.nats[belongs].sum(), belongs.sum().double()])
    parts = [
        ratio(sums[:, part, 0], sums[:, part, 1], seed) if sums[:, part, 1].any() else _UNKNOWN
        for part in (0, 1)
    ]
    return parts[0], parts[1]


_UNKNOWN = Figure(math.nan, math.inf)
