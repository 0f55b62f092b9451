"""Texts to measure: generated ones, and real ones of the same number and length."""

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

_BLOCK = 1024  # rows read at a time
_STRETCHES = 16  # parts of the text from which the two sets alternate

Indices = NDArray[np.int64]  # of rows


@dataclass(frozen=True)
class Texts:
    """Texts with their network calls and seconds per text."""

    samples: list[Sample]
    calls: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Real:
    """Two disjoint sets of real texts; the second may be smaller.

    `whole` is the number of tokens of each text if no text holds an EOS; generated texts then get
    the same number. It is None if EOS may end a text.
    """

    first: Texts
    others: Texts
    whole: int | None
    name: str  # digest of the rows, with "whole" or "to its end"


def generate_texts(
    model: Model,
    setting: Setting,
    conditions: Conditions,
    say: Say,
    *,
    as_text: bool = True,
    whole: int | None = None,
) -> Texts:
    """Generates the texts of a setting.

    Args:
        model: The model.
        setting: Sampler, steps and temperature.
        conditions: Number, length, seed and further options.
        say: Receives a remark about texts that are not UTF-8.
        as_text: True if the judge scores strings.
        whole: Tokens of each text if EOS must not end it; None lets EOS end a text.
    """
    model.generate(length=2)  # warms the device up, which `seconds` must not include
    results = model.generate(stop=whole is None, **options(setting, conditions))
    samples = _samples(model, [result.ids for result in results], most=whole)
    if as_text and (broken := sum("\ufffd" in sample.text for sample in samples)):
        say(
            f"{setting}: {broken} of {len(samples)} texts are not UTF-8; the judge scores U+FFFD there"
        )
    return Texts(
        samples=samples,
        calls=sum(result.calls for result in results) / len(results),
        seconds=sum(result.seconds for result in results[:: conditions.batch]) / len(results),
    )


def options(setting: Setting, conditions: Conditions) -> dict[str, Any]:
    """The options of `generate` for a setting.
    Texts keep their whole length unless EOS is drawn.
    """
    shared = {name: getattr(conditions, name) for name in ("n", "length", "seed", "batch")}
    return {"ending": "free", **conditions.sampling, **asdict(setting), **shared}


def real_texts(model: Model, n: int, length: int, say: Say, data: Source = None) -> Real | None:
    """`n` rows of real text, spread over all of it and cut to the length, and `n` others.

    The text is the model's validation text unless `data` is given. With packing wrap a row is a
    window of the text, and it is cut at its first EOS. If at least half of the windows hold no EOS,
    only these are used, so that all texts have one length.
    """
    try:
        rows = rows_of(model, data)
    except UnmaskError as error:
        if data is not None:
            raise
        say(f"the table has no row of real text: {error}")
        return None
    indices, whole = np.arange(len(rows)), None
    eos = model.tokenizer.vocabulary.eos_id
    wrapped = model.config.data.packing == "wrap" and (data is None or isinstance(data, str))
    if wrapped and eos is not None:
        special = 1 if length < rows.length else 2  # BOS; a row of full length ends with EOS too
        body = length - special
        unended = _unended(rows, eos, body)
        if 2 * len(unended) >= len(rows):
            indices, whole = unended, max(body, 1)
    count, shorter = min(n, len(indices)), min(length, rows.length)
    if (count, shorter) != (n, length):
        kind = " without an EOS" if whole else ""
        say(
            f"the real text gives {count} of {n} rows{kind}, with {shorter} of {length} tokens each"
        )
    labels = list(model.tokenizer.labels.values())

    def texts(chosen: Indices) -> Texts:
        x, valid = rows[chosen]
        ids = [row[there][:length].tolist() for row, there in zip(x, valid, strict=True)]
        return Texts(_samples(model, ids, labels))

    first, others = map(texts, _two_sets(indices, n))
    return Real(first, others, whole, f"{rows.digest} {'whole' if whole else 'to its end'}")


def _two_sets(indices: Indices, n: int) -> tuple[Indices, Indices]:
    """Up to `n` rows from the whole text, and up to `n` others.

    Neighbouring rows are alike, so the two sets come from alternating stretches of the text, if
    these hold `n` rows each.
    """
    parts = np.array_split(indices, _STRETCHES)
    first, others = np.concatenate(parts[::2]), np.concatenate(parts[1::2])
    if min(len(first), len(others)) < n:
        first = _spread(indices, n)
        others = np.setdiff1d(indices, first)
    return _spread(first, n), _spread(others, n)


def _spread(indices: Indices, n: int) -> Indices:
    """Up to `n` of the indices, evenly spaced."""
    count = min(n, len(indices))
    return indices[(2 * np.arange(count) + 1) * len(indices) // max(2 * count, 1)]


def _unended(rows: Rows, eos: int, body: int) -> Indices:
    """The rows without an EOS in the `body` tokens behind BOS;
    the EOS at a row's end does not count.
    """
    found = []
    for start in range(0, len(rows), _BLOCK):
        x, _ = rows[range(start, min(start + _BLOCK, len(rows)))]
        ended = (x[:, 1 : min(1 + body, rows.length - 1)] == eos).any(1)
        found.append(start + np.flatnonzero(~ended.numpy()))
    return np.concatenate(found)


def _samples(
    model: Model,
    rows: Sequence[Sequence[int]],
    labels: Sequence[int] = (),
    most: int | None = None,
) -> list[Sample]:
    """The samples of rows, without special tokens and with at most `most` tokens."""
    tokenizer = model.tokenizer
    texts = [visible(ids, tokenizer.vocabulary, labels)[:most] for ids in rows]
    pieces = tokenizer.pieces()
    sizes = None if pieces is None else [len(piece or b"") for piece in pieces]
    return [
        Sample(ids, tokenizer.decode(ids), None if sizes is None else sum(sizes[i] for i in ids))
        for ids in texts
    ]
