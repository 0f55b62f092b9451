"""The zero-shot suite: a model on texts that it was never trained on, prepared as the paper's were."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmask.data.data_config import DataConfig
from unmask.data.load import first_rows, rows_from
from unmask.data.rows.token_rows import Rows
from unmask.errors import UnmaskError
from unmask.evaluation.suites.zero_shot_sets import SETS, coverage, find, zero_shot_set
from unmask.likelihood.bound import Bound, perplexity_of
from unmask.likelihood.estimate import likelihood
from unmask.model import Model


@dataclass(frozen=True)
class SetRow:
    """What was measured of a set, or why it could not be had (`absent`).

    `documents` is how many the rows cover, the last one perhaps in part; `words` how many words,
    between spaces, these had in the set as it is stored, before it was detokenized.
    """

    set: str
    preprocessing: str
    length: int
    source: str = ""
    note: str = ""  # what sets the text apart from the whole set
    bound: Bound | None = None
    documents: int = 0
    words: float = 0.0
    absent: str = ""

    @property
    def perplexity_per_word(self) -> float:
        """The whole cost, shared among the words of the original: comparable across tokenizers."""
        return perplexity_of(self._per_word("nats"))

    @property
    def perplexity_per_word_error(self) -> float:
        return self.perplexity_per_word * self._per_word("error")

    def _per_word(self, figure: str) -> float:
        assert self.bound is not None
        return float(getattr(self.bound, figure)) * self.bound.tokens / self.words

    def to_dict(self) -> dict[str, Any]:
        """All figures, for a log; an unknown error is null, and so is the reason where there is none."""
        row: dict[str, Any] = {
            "set": self.set,
            "absent": self.absent or None,
            "preprocessing": self.preprocessing,
            "length": self.length,
            "source": self.source,
            "note": self.note,
        }
        if self.bound is not None:
            row |= self.bound.to_dict() | {
                "documents": self.documents,
                "words": self.words,
                "perplexity_per_word": self.perplexity_per_word,
                "perplexity_per_word_error": self.perplexity_per_word_error,
            }
        return {name: _known(value) for name, value in row.items()}


def _known(value: Any) -> Any:
    """A figure, or None for one that is not a number or has no end: JSON has neither."""
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def zero_shot(
    model: Model,
    sets: str | Sequence[str] | None = None,
    *,
    folder: str | Path | None = None,
    draws: int = 8,
    seed: int = 0,
    batch: int = 32,
    limit: int | None = None,
    done: Callable[[SetRow], None] = lambda row: None,
) -> list[SetRow]:
    """The model's perplexity on each of the sets, one or several, or the paper's seven.

    Sets lie in a folder, or, without one, on the hub. One that cannot be had or read is a row that
    says why. `limit` measures the first rows of each set only; `done` gets each row as it is measured.
    """
    model.refuse_pairs("it has no perplexity of a text without one")
    names = [sets] if isinstance(sets, str) else list(dict.fromkeys(SETS if sets is None else sets))
    for name in names:
        zero_shot_set(name)
    if not names:
        raise UnmaskError(f"no set is named; known: {', '.join(SETS)}")
    if limit is not None and limit < 1:
        raise UnmaskError(f"limit must be 1 or more, not {limit}")
    if draws < 1:
        raise UnmaskError(f"draws must be 1 or more, not {draws}")
    place = None if folder is None else Path(folder)
    if place is not None and not place.is_dir():
        raise UnmaskError(f"no folder {place}")
    rows = []
    for name in names:
        row, text = _prepared(model, name, place, limit)
        if text is not None:
            text.count_unknown(model.tokenizer.unknown_id)
            with model.method.arithmetic():
                bound = likelihood(model.method, text, draws=draws, seed=seed, batch=batch)
            row = replace(row, bound=bound)
        rows.append(row)
        done(row)
    return rows


def _prepared(
    model: Model, name: str, folder: Path | None, limit: int | None
) -> tuple[SetRow, Rows | None]:
    """A set's rows of the model's length, or None, and all that is known of it before it is measured."""
    wanted = zero_shot_set(name)
    row = SetRow(name, wanted.preprocessing, model.length)
    # of the model's own text only the length and the cache matter
    config = DataConfig(
        length=model.length,
        packing=wanted.packing,
        detokenizer=wanted.detokenizer,
        cache=model.config.data.cache,
    )
    try:
        corpus, note = find(wanted, folder)
        if limit is None:
            rows = rows_from(corpus, model.tokenizer, config)
        else:
            rows = first_rows(corpus, model.tokenizer, config, limit)
        documents, words = coverage(corpus, wanted.detokenizer, rows.characters)
    except UnmaskError as reason:
        return replace(row, absent=str(reason)), None
    first = f"first {limit} rows" if limit == len(rows) else ""
    note = ", ".join(filter(None, (note, first)))
    return replace(row, source=corpus.name, note=note, documents=documents, words=words), rows
