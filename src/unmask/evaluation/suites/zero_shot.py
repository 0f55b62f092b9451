"""The zero-shot suite: a model on texts that it was never trained on, prepared as the paper's were."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import SUITES, Progress, Suite
from unmask.evaluation.suites.text_likelihood import say_unused
from unmask.files.jsonl import finite_json
from unmask.likelihood.figure_text import signed, with_error
from unmask.options import option

if TYPE_CHECKING:
    from unmask.data.rows.token_rows import Rows
    from unmask.likelihood.bound import Bound
    from unmask.model import Model


_COLUMNS = ("perplexity", "bits / byte", "per word", "tokens", "documents")


@dataclass(frozen=True)
class ZeroShotOptions:
    """Options of the suite `zero-shot`, whose texts are pinned."""

    sets: list[str] | None = option(
        None,
        metavar="NAME",
        help="ptb, wikitext, lm1b, lambada, ag_news, pubmed, arxiv; all of these unless given",
    )
    folder: str | None = option(
        None, metavar="DIR", help="where the sets lie; from the hub unless given"
    )
    limit: int | None = option(
        None, ge=1, help="the first N rows of each set only; all unless given"
    )
    draws: int = option(8, ge=1, help="noise draws per row: the error falls as 1/sqrt(N)")
    seed: int = option(0, help="seed of the draws")
    batch: int = option(32, ge=1, help="rows at a time")


@dataclass(frozen=True)
class SetRow:
    """Figures of a set, or the reason why it could not be had (`absent`).

    `documents` is how many the rows cover, the last one perhaps in part; `words` how many words,
    between spaces, these had in the set as it is stored, before it was detokenized.
    """

    set: str
    preprocessing: str
    length: int
    tokenizer: str
    precision: str
    source: str = ""
    note: str = ""  # what sets the text apart from the whole set
    bound: "Bound | None" = None
    documents: int = 0
    words: float = 0.0
    absent: str = ""

    @property
    def perplexity_per_word(self) -> float:
        """The whole cost, shared among the words of the original: comparable across tokenizers."""
        from unmask.likelihood.bound import perplexity_of

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
            "tokenizer": self.tokenizer,
            "precision": self.precision,
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
        return {name: finite_json(value) for name, value in row.items()}


@SUITES.register("zero-shot")
class ZeroShot(Suite):
    """Perplexity on the paper's zero-shot sets."""

    Options = ZeroShotOptions
    Row = SetRow
    examples = (
        "runs/owt --folder sets --draws 8",
        "runs/owt --sets ptb lm1b --limit 100 --json",
    )

    def rows(
        self, model: "Model", options: ZeroShotOptions, progress: Progress
    ) -> Iterator[SetRow]:
        names = _names(model, options.sets)
        progress.expect(names)
        bounds = []
        how = (options.folder, options.draws, options.seed, options.batch, options.limit)
        for row in _measured(model, names, *how):
            bounds += [row.bound] if row.bound else []
            yield row
        if not bounds:
            instead = "" if options.folder else "; --folder DIR takes them from files"
            raise UnmaskError(f"none of the sets could be had: the reasons are above{instead}")
        say_unused(options, bounds[0], progress)  # those of a model are alike

    def cells(self, row: SetRow) -> dict[str, str]:
        bound = row.bound
        figures = dict.fromkeys(_COLUMNS, "") | {"perplexity": "absent"}
        if bound is not None:
            sign = partial(signed, bound.certificate)
            about = (
                "≈ {}".format if bound.unknown else sign
            )  # of a text with unknown parts: no bound
            token, byte, word = (
                with_error(bound.perplexity, bound.perplexity_error, bound.freedom),
                with_error(bound.bits_per_byte, bound.bits_per_byte_error, bound.freedom),
                with_error(row.perplexity_per_word, row.perplexity_per_word_error, bound.freedom),
            )
            counts = (f"{bound.tokens:,}", f"{row.documents:,}")
            texts = (sign(token), about(byte), about(word), *counts)
            figures = dict(zip(_COLUMNS, texts, strict=True))
        unknown = bound.unknown if bound else 0
        foreign = f"{unknown:,} tokens of what the tokenizer has none for" if unknown else ""
        prepared = "; ".join(filter(None, (row.preprocessing, row.note, foreign)))
        return {"set": row.set, **figures, "preprocessing": row.absent or prepared}

    def notes(self, rows: Sequence[SetRow]) -> list[str]:
        first = rows[0]
        cut = f"one stream cut into rows of {first.length}: BOS, {first.length - 2} tokens, EOS"
        line = f"{first.tokenizer}, {first.precision}: {cut}{_draws(rows)}"
        return [line, *(f"{row.set}: {row.source}" for row in rows if row.source)]


def _draws(rows: Sequence[SetRow]) -> str:
    """The draws that errors come from, and those that would halve them; an exact figure needs none."""
    noisy = [row.bound for row in rows if row.bound and row.bound.error]
    if not noisy:
        return ""
    if noisy[0].draws_to_halve is None:
        return "; 1 draw, so errors are those over texts"
    return f"; {noisy[0].draws} draws, {noisy[0].draws_to_halve} to halve the errors"


def zero_shot(
    model: "Model",
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
    rows = []
    for row in _measured(model, _names(model, sets), folder, draws, seed, batch, limit):
        rows.append(row)
        done(row)
    return rows


def _names(model: "Model", sets: str | Sequence[str] | None) -> list[str]:
    """The names of sets, all of which are known."""
    from unmask.evaluation.suites.zero_shot_sets import SETS, zero_shot_set

    model.refuse_pairs("it has no perplexity of a text without one")
    names = [sets] if isinstance(sets, str) else list(dict.fromkeys(SETS if sets is None else sets))
    for name in names:
        zero_shot_set(name)
    if not names:
        raise UnmaskError(f"no set is named; known: {', '.join(SETS)}")
    return names


def _measured(
    model: "Model",
    names: Sequence[str],
    folder: str | Path | None,
    draws: int,
    seed: int,
    batch: int,
    limit: int | None,
) -> Iterator[SetRow]:
    """A row for each set."""
    from unmask.likelihood.estimate import likelihood

    if limit is not None and limit < 1:
        raise UnmaskError(f"limit must be 1 or more, not {limit}")
    if draws < 1:
        raise UnmaskError(f"draws must be 1 or more, not {draws}")
    place = None if folder is None else Path(folder)
    if place is not None and not place.is_dir():
        raise UnmaskError(f"no folder {place}")
    for name in names:
        row, text = _prepared(model, name, place, limit)
        if text is not None:
            text.count_unknown(model.tokenizer.unknown_id)
            with model.method.arithmetic():
                bound = likelihood(model.method, text, draws=draws, seed=seed, batch=batch)
            row = replace(row, bound=bound)
        yield row


def _prepared(
    model: "Model", name: str, folder: Path | None, limit: int | None
) -> "tuple[SetRow, Rows | None]":
    """A set's rows of the model's length, or None, and all that is known of it before it is measured."""
    from unmask.data.data_config import DataConfig
    from unmask.data.load import first_rows, rows_from
    from unmask.evaluation.suites.zero_shot_sets import coverage, find, zero_shot_set

    wanted = zero_shot_set(name)
    tokenizer = f"{model.config.data.tokenizer.kind} {model.tokenizer.vocabulary.size}"
    row = SetRow(name, wanted.preprocessing, model.length, tokenizer, model.precision)
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
