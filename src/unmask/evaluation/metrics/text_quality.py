"""Quality and diversity of generated texts, with standard errors and intervals."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.evaluation.judges.judge import Judge, Sample, Text
from unmask.evaluation.metrics.bootstrap import Figure, mean, ratio
from unmask.evaluation.metrics.mauve import mauve
from unmask.vocabulary import Vocabulary


def repetition(text: Text, n: int = 4) -> float:
    """Share of a text's n-grams that occurred earlier in it; 0 for a text without n-grams."""
    grams = _grams(text, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


@dataclass(frozen=True)
class Quality:
    """Figures of a set of texts: likelihood under a judge, and diversity.

    Read `nats` together with `entropy`: repeating one likely word lowers both.
    """

    nats: Figure  # per token of the judge
    bits_per_byte: Figure  # of the judge; comparable between judges with different tokenizers
    certificate: str  # relation of `nats` to the judge's true value: "exact" or "upper"
    entropy: Figure  # of a text's token counts, in nats
    distinct_1: Figure
    distinct_2: Figure
    distinct_3: Figure
    repetition: Figure
    mauve: Figure | None  # similarity to real texts, at most 1
    tokens: int  # in the judge's tokenizer


def measure(
    samples: Sequence[Sample],
    judge: Judge,
    *,
    real: Float[Tensor, "others width"] | None = None,
    seed: int = 0,
) -> Quality:
    """Measures the quality of texts.

    Args:
        samples: The texts.
        judge: Judge of their likelihood.
        real: The judge's features of real texts; without them there is no MAUVE.
        seed: Seed of the bootstrap, and of the judge's noise.
    """
    if not samples:
        raise UnmaskError("there is no text to measure: give at least one sample")
    read = judge.read(samples, seed)
    sizes = [sample.bytes(judge.reads_text) for sample in samples]
    tokens = int(read.tokens.sum())
    if not tokens or not sum(sizes):
        raise UnmaskError("all texts are empty and cannot be measured: give texts with tokens")
    texts = [sample.ids for sample in samples]
    distincts = [distinct(texts, n, seed) for n in (1, 2, 3)]
    return Quality(
        nats=ratio(read.nats.numpy(), read.tokens.numpy(), seed),
        bits_per_byte=ratio(read.nats.numpy() / math.log(2), sizes, seed),
        certificate=judge.certificate,
        entropy=mean([token_entropy(text) for text in texts], seed),
        distinct_1=distincts[0],
        distinct_2=distincts[1],
        distinct_3=distincts[2],
        repetition=mean([repetition(text) for text in texts], seed),
        mauve=None if real is None or read.features is None else mauve(read.features, real, seed),
        tokens=tokens,
    )


def visible(ids: Sequence[int], vocabulary: Vocabulary, labels: Collection[int] = ()) -> list[int]:
    """The text tokens of a row: behind BOS or class token, up to EOS, without special tokens."""
    v = vocabulary
    framed = bool(ids) and (ids[0] == v.bos_id or ids[0] in labels)
    body = list(ids[1:] if framed else ids)  # GPT-2's BOS is its EOS
    if v.eos_id in body:
        body = body[: body.index(v.eos_id)]
    return [token for token in body if token not in (v.mask_id, v.pad_id, v.bos_id)]


# Diversity


def token_entropy(text: Text) -> float:
    """Entropy in nats of the token counts of one text; it grows with the text's length."""
    total = len(text)
    return math.fsum(count / total * math.log(total / count) for count in Counter(text).values())


def distinct(texts: Sequence[Text], n: int = 2, seed: int = 0) -> Figure:
    """Number of different n-grams of all texts divided by their number of n-grams.

    A bootstrap resample holds some texts twice, and their n-grams are then not distinct. So the
    jackknife's pseudo-values are resampled instead. On average, the jackknife overestimates the
    variance (Efron and Stein, 1981).
    """
    grams = [_grams(text, n) for text in texts]
    holders = Counter(gram for held in grams for gram in set(held))  # texts that have the n-gram
    total = sum(map(len, grams))
    if not total:
        return Figure(1.0, math.inf)
    value = len(holders) / total
    without = [  # the figure without one of the texts
        (len(holders) - sum(holders[gram] == 1 for gram in set(held))) / (total - len(held))
        for held in grams
        if len(held) < total
    ]
    if len(without) < 2:
        return Figure(value, math.inf)
    middle = math.fsum(without) / len(without)
    figure = mean([value + (len(without) - 1) * (middle - other) for other in without], seed)
    if math.isinf(figure.low):
        return replace(figure, value=value)
    return replace(figure, value=value, low=max(0.0, figure.low), high=min(1.0, figure.high))


def _grams(text: Text, n: int) -> list[tuple[int, ...]]:
    return list(zip(*(text[start:] for start in range(n)), strict=False))
