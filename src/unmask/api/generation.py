"""Texts to measure: a sampler's, and as many real ones of the same length."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unmask.api.model import Model
from unmask.api.rows import Conditions, Setting
from unmask.data import load_data
from unmask.errors import UnmaskError
from unmask.evaluation import Sample, visible

Say = Callable[[str], None]


@dataclass(frozen=True)
class Texts:
    """Texts, and what they cost."""

    samples: list[Sample]
    calls: float | None = None
    seconds: float | None = None


def written(model: Model, setting: Setting, conditions: Conditions, say: Say) -> Texts:
    """The texts of a sampler."""
    model.generate(length=2)  # the first call of a process pays for the device's start
    results = model.generate(**options(setting, conditions))
    samples = [_sample(model, result.ids) for result in results]
    if broken := sum("\ufffd" in sample.text for sample in samples):
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


def real_texts(model: Model, n: int, length: int, say: Say) -> tuple[Texts, Texts] | None:
    """The first `n` rows of the model's validation text, cut to the length, and the `n` behind them."""
    try:
        rows = load_data(model.config.data, model.tokenizer).valid
    except UnmaskError as error:
        say(f"no row of real text: {error}")
        return None
    count, shorter = min(n, len(rows)), min(length, rows.length)
    if (count, shorter) != (n, length):
        say(f"the real text has {count} rows of {shorter} tokens, not {n} of {length}")
    x, valid = rows[range(min(2 * n, len(rows)))]
    ids = [row[there][:length].tolist() for row, there in zip(x, valid, strict=True)]
    labels = list(model.tokenizer.labels.values())
    samples = [_sample(model, text, labels) for text in ids]
    return Texts(samples[:n]), Texts(samples[n:])


def _sample(model: Model, ids: Sequence[int], labels: Sequence[int] = ()) -> Sample:
    """What a reader sees of a row."""
    seen = visible(ids, model.tokenizer.vocabulary, labels)
    return Sample(seen, model.tokenizer.decode(seen))
