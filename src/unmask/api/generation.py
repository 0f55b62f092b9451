"""Texts to measure: a sampler's, and as many real ones of the same length."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.api.model import Model
from unmask.api.predicting import Source, rows_of
from unmask.api.rows import Conditions, Setting
from unmask.data import Rows
from unmask.errors import UnmaskError
from unmask.evaluation import Sample, visible

Say = Callable[[str], None]

_AT_ONCE = 1024  # rows


@dataclass(frozen=True)
class Texts:
    """Texts, and what they cost."""

    samples: list[Sample]
    calls: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Real:
    """Real texts, and as many others from behind them where there are."""

    first: Texts
    others: Texts
    whole: bool  # none ends before its length, and none that is held against them should


def written(
    model: Model,
    setting: Setting,
    conditions: Conditions,
    say: Say,
    *,
    as_text: bool = True,
    stop: bool = True,
) -> Texts:
    """The texts of a sampler, to be read as text or as tokens, up to their own end or (`stop`) without one."""
    model.generate(length=2)  # the first call of a process pays for the device's start
    results = model.generate(stop=stop, **options(setting, conditions))
    samples = _samples(model, [result.ids for result in results])
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
    """What `generate` is asked for."""
    names = ("n", "length", "top_k", "top_p", "seed", "batch")
    return {**asdict(setting), **{name: getattr(conditions, name) for name in names}}


def real_texts(model: Model, n: int, length: int, say: Say, data: Source = None) -> Real | None:
    """`n` rows of real text, cut to the length, and `n` others from behind them, spread over the text.

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
    places, eos = np.arange(len(rows)), model.tokenizer.vocabulary.eos_id
    whole = model.config.data.packing == "wrap" and (data is None or isinstance(data, str))
    if whole and eos is not None:
        unended = _unended(rows, eos, length)
        whole = 2 * len(unended) >= len(rows)
        places = unended if whole else places
    count, shorter = min(n, len(places)), min(length, rows.length)
    if (count, shorter) != (n, length):
        say(f"the real text has {count} rows of {shorter} tokens, not {n} of {length}")
    taken = min(2 * n, len(places))
    x, valid = rows[places[np.arange(taken) * len(places) // taken]]
    ids = [row[there][:length].tolist() for row, there in zip(x, valid, strict=True)]
    labels = list(model.tokenizer.labels.values())
    samples = _samples(model, ids, labels)
    return Real(Texts(samples[:n]), Texts(samples[n:]), whole)


def _unended(rows: Rows, eos: int, length: int) -> NDArray[np.int64]:
    """The rows that have no EOS between their first token and their last, of so many."""
    found = []
    for start in range(0, len(rows), _AT_ONCE):
        x, _ = rows[range(start, min(start + _AT_ONCE, len(rows)))]
        ended = (x[:, 1 : min(length, rows.length) - 1] == eos).any(1)
        found.append(start + np.flatnonzero(~ended.numpy()))
    return np.concatenate(found)


def _samples(
    model: Model, rows: Sequence[Sequence[int]], labels: Sequence[int] = ()
) -> list[Sample]:
    """What a reader sees of rows."""
    tokenizer = model.tokenizer
    texts = [visible(ids, tokenizer.vocabulary, labels) for ids in rows]
    pieces = tokenizer.pieces()
    sizes = None if pieces is None else [len(piece or b"") for piece in pieces]
    return [
        Sample(ids, tokenizer.decode(ids), None if sizes is None else sum(sizes[i] for i in ids))
        for ids in texts
    ]
