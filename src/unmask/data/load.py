"""Builds the tokenizer and the rows of a data configuration."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from unmask.data.corpora import detokenized, fields_of, finite, opened, opened_pairs
from unmask.data.data_config import STREAMS, WINDOWS, DataConfig
from unmask.data.documents.labels import Classes
from unmask.data.documents.pairs import Pair, pair_of, sides
from unmask.data.documents.read_errors import read_error_notes
from unmask.data.documents.separation import AUTO, RULES
from unmask.data.rows.encode import Encode, encoding
from unmask.data.rows.packing import TooShort, pack
from unmask.data.rows.row_cache import UnfinishedRows, cache_key, making, stored_rows
from unmask.data.rows.row_counts import Table, Totals
from unmask.data.rows.stream_rows import StreamRows
from unmask.data.rows.token_rows import Layout, Mixture, Rows
from unmask.data.sources.bed import read_regions
from unmask.data.sources.corpus import Corpus, DocumentSpool, beginning, sample
from unmask.data.sources.open_source import open_corpus
from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.data.tokenizers.tokenizer import TOKENIZERS, Tokenizer
from unmask.errors import UnmaskError
from unmask.files.storage import cache_folder


@dataclass(frozen=True)
class Data:
    """Tokenizer, training rows and validation rows of a run, and notes for the user."""

    tokenizer: Tokenizer
    train: Rows | StreamRows
    valid: Rows
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Part:
    """A part of a corpus: all documents, the held-out ones, or the others."""

    corpus: Corpus
    documents: Callable[[], Iterable[str]]
    name: str  # of the part, in the cache key
    # the same documents; packing both parts of a split reads the corpus once
    to_pack: Callable[[], Iterable[str]]

    @classmethod
    def all_of(cls, corpus: Corpus) -> "_Part":
        return cls(corpus, partial(iter, corpus), "all", partial(iter, corpus))

    @classmethod
    def split(cls, corpus: Corpus, holdout: float, spool: DocumentSpool) -> tuple["_Part", "_Part"]:
        """The training documents and the held-out documents."""
        part = partial(corpus.part, holdout)
        share = f"{holdout!r}{'' if corpus.held_by_size(holdout) is None else ' by size'}"
        return (
            cls(corpus, partial(part, False), f"but {share}", partial(part, False, spool)),
            cls(corpus, partial(part, True), f"only {share}", partial(part, True, spool)),
        )


def load_data(
    config: DataConfig,
    tokenizer: Tokenizer | None = None,
    train_on: Corpus | None = None,
    validate_on: Corpus | None = None,
) -> Data:
    """Tokenizer and rows of a configuration.

    A missing tokenizer learns from `tokenizer.source`, or else from the training documents without
    the held-out ones. Each corpus of a mixture has its own held-out documents. Validation uses all
    of them. `train_on` and `validate_on` replace the sources of the configuration.
    """
    weights = [portion.weight for portion in config.portions]
    regions = read_regions(config.intervals, [config.exclude, config.holdout_intervals])
    corpora = [
        opened(portion.text, config, regions) for portion in config.portions if train_on is None
    ]
    if train_on is not None:
        corpora = [detokenized(train_on, config)]
    for corpus in corpora:
        if corpus.endless:
            return _streamed(corpus, validate_on, config, tokenizer)
    other = _validation_corpus(validate_on, config)
    with ExitStack() as stack:
        if other is not None:
            train = [_Part.all_of(corpus) for corpus in corpora]
            valid = [_Part.all_of(other)]
        else:
            folder = cache_folder(config.cache)
            spools = [stack.enter_context(closing(DocumentSpool(folder))) for _ in corpora]
            split = [
                _Part.split(corpus, config.holdout, spool)
                for corpus, spool in zip(corpora, spools, strict=True)
            ]
            train, valid = [kept for kept, _ in split], [held for _, held in split]
        if tokenizer is None:
            tokenizer = _learned(train, weights, config)
        train_rows = [_run_rows(part, tokenizer, config) for part in train]
        valid_rows = [_run_rows(part, tokenizer, config) for part in valid]
    read = [*zip(train, train_rows, strict=True)]
    read += zip(valid, valid_rows, strict=True) if other is not None else []
    return Data(
        tokenizer,
        train_rows[0] if len(train_rows) == 1 else Mixture(train_rows, weights),
        valid_rows[0] if len(valid_rows) == 1 else Mixture(valid_rows, weights, interleaved=True),
        tuple(
            note for part, rows in read for note in read_error_notes(part.corpus.name, rows.faults)
        ),
    )


def _validation_corpus(given: Corpus | None, config: DataConfig) -> Corpus | None:
    """The given corpus or that of `data.valid`; None if documents are to be held out."""
    if given is not None:
        return finite(detokenized(given, config))
    if config.holdout_intervals:
        if len(config.portions) > 1:
            raise UnmaskError("data.holdout_intervals needs one genome: give one source to train")
        regions = read_regions(config.holdout_intervals, [config.exclude])
        return finite(opened(config.portions[0].text, config, regions))
    return finite(opened(config.valid, config)) if config.valid else None


def _streamed(
    stream: Corpus, validate_on: Corpus | None, config: DataConfig, tokenizer: Tokenizer | None
) -> Data:
    """The data of a run on a stream, which allows neither held-out documents nor class labels."""
    if len(config.portions) > 1:
        raise UnmaskError(
            f"{stream.name} is a stream and cannot be mixed: remove the other sources of data.train"
        )
    if config.label_field:
        raise UnmaskError(
            f"{stream.name} is a stream and has no class labels: leave data.label_field empty"
        )
    other = _validation_corpus(validate_on, config)
    if other is None:
        raise UnmaskError(
            f"{stream.name} is a stream without held-out documents: "
            "set data.valid to a file or a folder"
        )
    valid = _Part.all_of(other)
    tokenizer = tokenizer or _learned([_Part.all_of(stream)], [1.0], config)
    rows = StreamRows(stream, tokenizer, config.length, _packer(config), _layout(config, tokenizer))
    measured = _rows(valid, tokenizer, config)
    return Data(
        tokenizer, rows, measured, tuple(read_error_notes(valid.corpus.name, measured.faults))
    )


def _learned(parts: list[_Part], weights: list[float], config: DataConfig) -> Tokenizer:
    """A tokenizer learned from the training documents, with a token for each of their class labels.

    One pass over the documents collects both. A tokenizer kind with `samples` learns from
    `tokenizer.sample` characters, shared among the corpora by weight. From a stream, every kind
    learns from the first `tokenizer.sample` characters.
    """
    classes, source = Classes(config.label_field), config.tokenizer.source
    training = (classes.noting(part.documents()) for part in parts)
    by_corpus: Iterable[Iterable[str]] = training
    endless = parts[0].corpus.endless
    if source:
        corpus = opened(source, config)
        by_corpus, weights, endless = [iter(corpus)], [1.0], corpus.endless
    texts = sides(chain.from_iterable(by_corpus))
    kind = TOKENIZERS[config.tokenizer.kind]
    if endless:
        texts = beginning(texts, config.tokenizer.sample)
    elif kind.learns and kind.samples:
        shares = [config.tokenizer.sample * weight / sum(weights) for weight in weights]
        folder = cache_folder(config.cache)
        texts = chain.from_iterable(map(sample, by_corpus, shares, repeat(folder)))
    tokenizer = build_tokenizer(config.tokenizer, texts)
    if config.packing == WINDOWS:
        tokenizer = tokenizer.without_ends()
    elif config.packing not in STREAMS:
        tokenizer = tokenizer.with_pad()
    if config.label_field:
        for _ in chain.from_iterable(training):  # class labels of documents not yet read
            pass
        tokenizer = tokenizer.with_labels(classes.names())
    return tokenizer


def rows_from(
    source: str | Corpus | Iterable[str | tuple[str, str]],
    tokenizer: Tokenizer,
    config: DataConfig,
) -> Rows:
    """Rows of a source (cached), or of a list of texts or pairs (in memory), packed by `config`.

    The configured detokenizer is applied to a source, but not to a list.
    """
    if isinstance(source, str):
        pairs = config.paired
        source = opened_pairs(source, config) if pairs else open_corpus(source, fields_of(config))
    if isinstance(source, Corpus):
        corpus = finite(detokenized(source, config))
        return _rows(_Part.all_of(corpus), tokenizer, config)
    if not isinstance(source, Iterable):
        raise UnmaskError(
            f"the text is of type {type(source).__name__}: "
            "give a list of texts or pairs, or the name of a source"
        )
    documents = [_document(text, number, config) for number, text in enumerate(source, start=1)]
    texts = [text for text in documents if text and not text.isspace()]
    if not texts:
        raise UnmaskError("the texts are empty: give at least one that is not blank")
    return _in_memory(texts, tokenizer, config)


def _document(given: object, number: int, config: DataConfig) -> str:
    """Item `number` of a user's list as a document; an error if the model cannot read it."""
    match given:
        case Pair():
            source, target = given.source, str(given)
        case str():
            return given
        case [str() as source, str() as target]:
            pass
        case _:
            raise UnmaskError(
                f"text {number} is neither a text nor a pair of texts (source, target)"
            )
    if not config.paired:
        raise UnmaskError(
            f"text {number} is a pair, but this model was not trained on pairs: give the text alone"
        )
    return pair_of(source, target, f"pair {number}", ("source", "target"))


def first_rows(corpus: Corpus, tokenizer: Tokenizer, config: DataConfig, limit: int) -> Rows:
    """The first `limit` rows of a corpus with packing wrap or join; the rest stays unread."""
    return _in_memory(detokenized(corpus, config), tokenizer, config, limit)


def _in_memory(
    documents: Iterable[str], tokenizer: Tokenizer, config: DataConfig, limit: int | None = None
) -> Rows:
    totals = Totals()
    tables = list(pack(documents, tokenizer, config.length, _packer(config), totals, limit))
    return Rows(np.concatenate(tables), totals, _layout(config, tokenizer))


def pairs_from(source: str | None, config: DataConfig) -> Iterator[Pair]:
    """The pairs of a source, or the validation pairs of the configuration if there is none.

    An unreadable record of `source` or `data.valid` is an error, since a score must cover the whole
    set.
    """
    if source or config.valid:
        corpus = opened_pairs(source or config.valid, replace(config, corrupt=0.0))
        documents = iter(finite(corpus))
    else:
        corpora = (opened_pairs(portion.text, config) for portion in config.portions)
        parts = (corpus.part(config.holdout, held=True) for corpus in corpora)
        documents = chain.from_iterable(parts)
    return (document for document in documents if isinstance(document, Pair))


def _layout(config: DataConfig, tokenizer: Tokenizer) -> Layout:
    if config.messages_field:
        return Layout(marked=True)
    filled = config.paired and config.fill_target
    return Layout(config.paired, filled, None if config.paired else tokenizer.ignored_id)


def _packer(config: DataConfig) -> str:
    if config.messages_field:
        return "packed chats" if config.packing == "fit" else "chats"
    return "pairs" if config.paired else config.packing


def _run_rows(part: _Part, tokenizer: Tokenizer, config: DataConfig) -> Rows:
    """The rows of a part of a run's text; a part that is shorter than a row has padded rows."""
    try:
        return _rows(part, tokenizer, config)
    except TooShort:
        if config.packing == WINDOWS or config.messages_field:
            raise
        return _rows(part, tokenizer, replace(config, packing="fit"))


def _rows(part: _Part, tokenizer: Tokenizer, config: DataConfig) -> Rows:
    """The cached rows of a part of a corpus. Rows that are not cached are tokenised first."""
    folder, layout = cache_folder(config.cache), _layout(config, tokenizer)
    # fill_target is not in the key: it changes which tokens are valid, not the stored rows
    pairs = {"source_field": config.source_field, "target_field": config.target_field}
    key = cache_key(
        {
            **(pairs if config.paired else {}),
            **({"messages_field": config.messages_field} if config.messages_field else {}),
            "content": part.corpus.digest,
            "part": part.name,
            "tokenizer": tokenizer.fingerprint,
            "length": config.length,
            "packing": _packer(config),
            "separator": RULES if config.separator == AUTO else config.separator,
            "text_field": config.text_field,
            "label_field": config.label_field,
            "detokenizer": config.detokenizer,
        }
    )
    rows = stored_rows(folder, key, config.length, layout)
    if rows is None:
        with making(folder, key) as has_lock:
            # another process may have written them before this one got the lock
            rows = stored_rows(folder, key, config.length, layout)
            if rows is None:
                _make_rows(part, folder, key, has_lock, tokenizer, config)
                rows = stored_rows(folder, key, config.length, layout)
    if rows is None:
        raise UnmaskError(f"the row cache in {folder} was deleted during the run: run again")
    replace(rows.faults, allowed=config.corrupt).check()
    return rows


def _make_rows(
    part: _Part, folder: Path, key: str, has_lock: bool, tokenizer: Tokenizer, config: DataConfig
) -> None:
    # a stored number is a token id, perhaps with a mark, or in column 0 the number of valid tokens
    ids = tokenizer.vocabulary.size * (2 if config.messages_field else 1)
    largest = max(ids, config.length)
    unfinished = UnfinishedRows(folder, key, largest, has_lock)

    def tables(encode: Encode) -> Iterator[Table]:
        options = (tokenizer, config.length, _packer(config), unfinished.totals)
        yield from pack(part.to_pack(), *options, place=unfinished.place, encode=encode)
        unfinished.totals.faults = part.corpus.faults

    with encoding(tokenizer, config.workers) as encode:
        unfinished.write(tables(encode))


def first_sources(data: Data, count: int) -> list[str]:
    """The decoded sources of the first `count` validation pairs."""
    index = range(min(count, len(data.valid)))
    x, given = data.valid[index][0], data.valid.given(index)
    assert given is not None
    return [data.tokenizer.decode(row[mask]) for row, mask in zip(x, given, strict=True)]
