"""The suite `zero-shot`: perplexity on data sets outside the training text,
prepared as in the paper.
"""

from collections.abc import Iterator, Sequence
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
    """Options of the suite `zero-shot`."""

    sets: list[str] | None = option(
        None,
        metavar="NAME",
        help="data sets: ptb, wikitext, lm1b, lambada, ag_news, pubmed, arxiv; by default all of these",
    )
    folder: str | None = option(
        None, metavar="DIR", help="folder of the data sets; by default the hub"
    )
    limit: int | None = option(None, ge=1, help="the first N rows of each set only; by default all")
    draws: int = option(8, ge=1, help="noise draws per row; the error falls as 1/sqrt(N)")
    seed: int = option(0, help="seed of the draws")
    batch: int = option(32, ge=1, help="rows of one batch")


@dataclass(frozen=True)
class SetRow:
    """Figures of a data set, or the reason why it could not be read (`absent`).

    `documents` counts the documents that the rows cover, with a last one that is covered in part.
    `words` counts their words, split at white space before detokenization.
    """

    set: str
    preprocessing: str
    length: int
    tokenizer: str
    precision: str
    source: str = ""
    note: str = ""  # difference from the full set
    bound: "Bound | None" = None
    documents: int = 0
    words: float = 0.0
    absent: str = ""

    @property
    def perplexity_per_word(self) -> float:
        """Perplexity per word of the original text; comparable between tokenizers."""
        from unmask.likelihood.bound import perplexity_of

        return perplexity_of(self._per_word("nats"))

    @property
    def perplexity_per_word_error(self) -> float:
        return self.perplexity_per_word * self._per_word("error")

    def _per_word(self, figure: str) -> float:
        assert self.bound is not None
        return float(getattr(self.bound, figure)) * self.bound.tokens / self.words

    def to_dict(self) -> dict[str, Any]:
        """All figures as a dictionary; an unknown error and an empty `absent` are None."""
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
        for row in _measured(model, names, options):
            bounds += [row.bound] if row.bound else []
            yield row
        if not bounds:
            instead = "" if options.folder else "; --folder DIR reads them from files"
            raise UnmaskError(
                f"none of the sets could be read, for the reasons in the table above{instead}"
            )
        say_unused(options, bounds[0], progress)  # all bounds of a model have one certificate

    def cells(self, row: SetRow) -> dict[str, str]:
        bound = row.bound
        figures = dict.fromkeys(_COLUMNS, "") | {"perplexity": "absent"}
        if bound is not None:
            sign = partial(signed, bound.certificate)
            # with unknown tokens the figure per byte or word is no bound
            about = "≈ {}".format if bound.unknown else sign
            token, byte, word = (
                with_error(bound.perplexity, bound.perplexity_error, bound.freedom),
                with_error(bound.bits_per_byte, bound.bits_per_byte_error, bound.freedom),
                with_error(row.perplexity_per_word, row.perplexity_per_word_error, bound.freedom),
            )
            counts = (f"{bound.tokens:,}", f"{row.documents:,}")
            texts = (sign(token), about(byte), about(word), *counts)
            figures = dict(zip(_COLUMNS, texts, strict=True))
        unknown = bound.unknown if bound else 0
        unknown_tokens = f"{unknown:,} unknown tokens" if unknown else ""
        prepared = "; ".join(filter(None, (row.preprocessing, row.note, unknown_tokens)))
        return {"set": row.set, **figures, "preprocessing": row.absent or prepared}

    def notes(self, rows: Sequence[SetRow]) -> list[str]:
        first = rows[0]
        cut = f"one stream cut into rows of {first.length}: BOS, {first.length - 2} tokens, EOS"
        line = f"{first.tokenizer}, {first.precision}: {cut}{_draws(rows)}"
        return [line, *(f"{row.set}: {row.source}" for row in rows if row.source)]


def _draws(rows: Sequence[SetRow]) -> str:
    """The number of draws, and the number that would halve the errors; empty for exact figures."""
    noisy = [row.bound for row in rows if row.bound and row.bound.error]
    if not noisy:
        return ""
    if noisy[0].draws_to_halve is None:
        return "; 1 draw: errors over texts"
    return f"; {noisy[0].draws} draws, {noisy[0].draws_to_halve} to halve the errors"


def _names(model: "Model", sets: str | Sequence[str] | None) -> list[str]:
    """The names of the sets; raises an error for an unknown one."""
    from unmask.extensions.zero_shot.zero_shot_sets import SETS, zero_shot_set

    model.refuse_pairs("it has no perplexity of a text without a source; give a model of text")
    names = [sets] if isinstance(sets, str) else list(dict.fromkeys(SETS if sets is None else sets))
    for name in names:
        zero_shot_set(name)
    if not names:
        raise UnmaskError(f"the list of sets is empty: give some of {', '.join(SETS)}")
    return names


def _measured(model: "Model", names: Sequence[str], options: ZeroShotOptions) -> Iterator[SetRow]:
    """The row of each set, as soon as it is measured."""
    from unmask.likelihood.estimate import likelihood

    path = None if options.folder is None else Path(options.folder)
    if path is not None and not path.is_dir():
        raise UnmaskError(f"no folder {path}: give the folder of the sets, or none for the hub")
    how: dict[str, Any] = {"draws": options.draws, "seed": options.seed, "batch": options.batch}
    for name in names:
        row, text = _prepared(model, name, path, options.limit)
        if text is not None:
            text.count_unknown(model.tokenizer.unknown_id)
            with model.method.arithmetic():
                row = replace(row, bound=likelihood(model.method, text, **how))
        yield row


def _prepared(
    model: "Model", name: str, folder: Path | None, limit: int | None
) -> "tuple[SetRow, Rows | None]":
    """The row of a set without figures, and its text in rows of the model's length.

    The text is None if it cannot be read.
    """
    from unmask.data.data_config import DataConfig
    from unmask.data.load import first_rows, rows_from
    from unmask.extensions.zero_shot.zero_shot_sets import coverage, find, zero_shot_set

    wanted = zero_shot_set(name)
    tokenizer = f"{model.config.data.tokenizer.kind} {model.tokenizer.vocabulary.size}"
    row = SetRow(name, wanted.preprocessing, model.length, tokenizer, model.precision)
    # the set replaces the model's data configuration, except length and cache
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
