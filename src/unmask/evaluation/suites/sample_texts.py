"""Texts to measure: a sampler's, and as many real ones of the same length."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.data.rows.token_rows import Rows
from unmask.errors import UnmaskError
from unmask.evaluation.judges.judge import Sample
from unmask.evaluation.metrics.text_quality import visible
from unmask.evaluation.suites.sample_rows import Conditions, Setting
from unmask.likelihood.perplexity import Source, rows_of
from unmask.model import Model

Say = Callable[[str], None]

_AT_ONCE = 1024  # rows
_STRETCHES = 16

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Texts:
    """Texts, and what they cost."""

    samples: list[Sample]
    calls: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Real:
    """Real texts, and others where there are enough.

    `whole` is how many tokens each has, and each that is held against them must have, if none ends before.
    """

    first: Texts
    others: Texts
    whole: int | None
    name: str  # which text it is, and how it was cut


def written(
    model: Model,
    setting: Setting,
    conditions: Conditions,
    say: Say,
    *,
    as_text: bool = True,
    whole: int | None = None,
) -> Texts:
    """The texts of a sampler, to be read as text or as tokens, up to their ends or so many without any."""
    model.generate(length=2)  # the first call of a process pays for the device's start
    results = model.generate(stop=whole is None, **options(setting, conditions))
    samples = _samples(model, [result.ids for result in results], most=whole)
    if as_text and (broken := sum("\ufffd" in sample.text for sample in samples)):
        say(
            f"{setting}: {broken} of {len(samples)} texts are not UTF-8; a judge reads U+FFFD there"
        )
    return Texts(
        samples=samples,
        calls=sum(result.calls for result in results) / len(results),
        seconds=sum(result.seconds for result in results[:: conditions.batch]) / len(results),
    )


def options(setting: Setting, conditions: Conditions) -> dict[str, Any]:
    """The options of `generate`."""
    shared = {name: getattr(conditions, name) for name in ("n", "length", "seed", "batch")}
    return {**conditions.sampling, **asdict(setting), **shared}


def real_texts(model: Model, n: int, length: int, say: Say, data: Source = None) -> Real | None:
    """`n` rows of real text, cut to the length, from all over it, and `n` others.

    They are the model's validation text unless `data` is given. Of text that is wrapped into rows,
    each row is a window, and where a text ends in it it is cut there. If that happens in few of them,
    the others are taken: windows of one length in which no text ends.
    """
    try:
        rows = rows_of(model, data)
    except UnmaskError as error:
        if data is not None:
            raise
        say(f"no row of real text: {error}")
        return None
    places, whole = np.arange(len(rows)), None
    eos = model.tokenizer.vocabulary.eos_id
    wrapped = model.config.data.packing == "wrap" and (data is None or isinstance(data, str))
    if wrapped and eos is not None:
        framed = 1 if length < rows.length else 2  # by BOS, and a whole row by EOS
        body = length - framed
        unended = _unended(rows, eos, body)
        if 2 * len(unended) >= len(rows):
            places, whole = unended, max(body, 1)
    count, shorter = min(n, len(places)), min(length, rows.length)
    if (count, shorter) != (n, length):
        kind = " without an end" if whole else ""
        say(f"rows of real text{kind}: {count} of {shorter} tokens, not {n} of {length}")
    labels = list(model.tokenizer.labels.values())

    def texts(chosen: Places) -> Texts:
        x, valid = rows[chosen]
        ids = [row[there][:length].tolist() for row, there in zip(x, valid, strict=True)]
        return Texts(_samples(model, ids, labels))

    first, others = map(texts, _two_sets(places, n))
    return Real(first, others, whole, f"{rows.digest} {'whole' if whole else 'to its end'}")


def _two_sets(places: Places, n: int) -> tuple[Places, Places]:
    """Up to `n` places from all over, and `n` others: from between, in stretches, as neighbours are alike."""
    parts = np.array_split(places, _STRETCHES)
    first, others = np.concatenate(parts[::2]), np.concatenate(parts[1::2])
    if min(len(first), len(others)) < n:
        first = _spread(places, n)
        others = np.setdiff1d(places, first)
    return _spread(first, n), _spread(others, n)


def _spread(places: Places, n: int) -> Places:
    count = min(n, len(places))
    return places[(2 * np.arange(count) + 1) * len(places) // max(2 * count, 1)]


def _unended(rows: Rows, eos: int, body: int) -> Places:
    """The rows that have no EOS in so many tokens behind BOS, but for the one that ends a row."""
    found = []
    for start in range(0, len(rows), _AT_ONCE):
        x, _ = rows[range(start, min(start + _AT_ONCE, len(rows)))]
        ended = (x[:, 1 : min(1 + body, rows.length - 1)] == eos).any(1)
        found.append(start + np.flatnonzero(~ended.numpy()))
    return np.concatenate(found)


def _samples(
    model: Model,
    rows: Sequence[Sequence[int]],
    labels: Sequence[int] = (),
    most: int | None = None,
) -> list[Sample]:
    """The texts of rows as a reader sees them, of `most` tokens at most."""
    tokenizer = model.tokenizer
    texts = [visible(ids, tokenizer.vocabulary, labels)[:most] for ids in rows]
    pieces = tokenizer.pieces()
    sizes = None if pieces is None else [len(piece or b"") for piece in pieces]
    return [
        Sample(ids, tokenizer.decode(ids), None if sizes is None else sum(sizes[i] for i in ids))
        for ids in texts
    ]
