"""From a data configuration to a tokenizer and rows."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from unmask.data.corpora import detokenized, fields_of, finite, opened, opened_pairs
from unmask.data.data_config import STREAMS, DataConfig
from unmask.data.documents.labels import Classes
from unmask.data.documents.pairs import Pair, pair_of, sides
from unmask.data.documents.read_errors import told
from unmask.data.rows.encode import Encode, encoding
from unmask.data.rows.packing import pack
from unmask.data.rows.row_cache import UnfinishedRows, cache_key, making, stored_rows
from unmask.data.rows.row_counts import Table, Totals
from unmask.data.rows.stream_rows import StreamRows
from unmask.data.rows.token_rows import Layout, Mixture, Rows
from unmask.data.sources.corpus import Corpus, SetAside, beginning, sample
from unmask.data.sources.open_source import open_corpus
from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.data.tokenizers.tokenizer import TOKENIZERS, Tokenizer
from unmask.errors import UnmaskError
from unmask.files.storage import cache_folder


@dataclass(frozen=True)
class Data:
    """The rows that a run trains on and is validated on, and notes for the user."""

    tokenizer: Tokenizer
    train: Rows | StreamRows
    valid: Rows
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Part:
    """Some of a corpus's documents, with words for which."""

    corpus: Corpus
    documents: Callable[[], Iterable[str]]
    which: str
    to_pack: Callable[[], Iterable[str]]  # the same; the rows of two parts take one reading

    @classmethod
    def all_of(cls, corpus: Corpus) -> "_Part":
        return cls(corpus, partial(iter, corpus), "all", partial(iter, corpus))

    @classmethod
    def split(cls, corpus: Corpus, holdout: float, aside: SetAside) -> tuple["_Part", "_Part"]:
        """The documents that are trained on, and those held out."""
        part = partial(corpus.part, holdout)
        return (
            cls(corpus, partial(part, False), f"but {holdout!r}", partial(part, False, aside)),
            cls(corpus, partial(part, True), f"only {holdout!r}", partial(part, True, aside)),
        )


def load_data(config: DataConfig, tokenizer: Tokenizer | None = None) -> Data:
    """The rows of a configuration; without a tokenizer one is built, on training documents only.

    Of a mixture each corpus is held out from by itself, and all that is held out is validated on.
    """
    weights = [portion.weight for portion in config.portions]
    corpora = [opened(portion.text, config) for portion in config.portions]
    for corpus in corpora:
        if corpus.endless:
            return _streamed(corpus, config, tokenizer)
    with ExitStack() as stack:
        if config.valid:
            train = [_Part.all_of(corpus) for corpus in corpora]
            valid = [_Part.all_of(finite(opened(config.valid, config)))]
        else:
            folder = cache_folder(config.cache)
            asides = [stack.enter_context(closing(SetAside(folder))) for _ in corpora]
            split = [
                _Part.split(corpus, config.holdout, aside)
                for corpus, aside in zip(corpora, asides, strict=True)
            ]
            train, valid = [kept for kept, _ in split], [held for _, held in split]
        if tokenizer is None:
            tokenizer = _learned(train, weights, config)
        train_rows = [_rows(part, tokenizer, config) for part in train]
        valid_rows = [_rows(part, tokenizer, config) for part in valid]
    read = [*zip(train, train_rows, strict=True)]
    read += zip(valid, valid_rows, strict=True) if config.valid else []
    return Data(
        tokenizer,
        train_rows[0] if len(train_rows) == 1 else Mixture(train_rows, weights),
        valid_rows[0] if len(valid_rows) == 1 else Mixture(valid_rows, weights, interleaved=True),
        tuple(note for part, rows in read for note in told(part.corpus.name, rows.faults)),
    )


def _streamed(stream: Corpus, config: DataConfig, tokenizer: Tokenizer | None) -> Data:
    """The data of a run on a stream: nothing is held out of it, and its classes cannot be known."""
    if len(config.portions) > 1:
        raise UnmaskError(f"{stream.name} is a stream, which is trained on alone: drop the others")
    if config.label_field:
        raise UnmaskError(
            f"{stream.name} is a stream, which has no classes: clear data.label_field"
        )
    if not config.valid:
        raise UnmaskError(f"{stream.name} is a stream: name a file or folder in data.valid")
    valid = _Part.all_of(finite(opened(config.valid, config)))
    tokenizer = tokenizer or _learned([_Part.all_of(stream)], [1.0], config)
    rows = StreamRows(stream, tokenizer, config.length, _packer(config), _layout(config))
    measured = _rows(valid, tokenizer, config)
    return Data(tokenizer, rows, measured, tuple(told(valid.corpus.name, measured.faults)))


def _learned(parts: list[_Part], weights: list[float], config: DataConfig) -> Tokenizer:
    """The tokenizer of the training documents, which are read once, with their classes.

    A kind that samples learns from at most its sample, of each corpus its share. Of a stream every
    kind that learns reads as many characters and no more.
    """
    classes, source = Classes(config.label_field), config.tokenizer.source
    noted = (classes.noting(part.documents()) for part in parts)
    read: Iterable[Iterable[str]] = noted
    endless = parts[0].corpus.endless
    if source:
        corpus = opened(source, config)
        read, weights, endless = [iter(corpus)], [1.0], corpus.endless
    texts = sides(chain.from_iterable(read))
    kind = TOKENIZERS[config.tokenizer.kind]
    if endless:
        texts = beginning(texts, config.tokenizer.sample)
    elif kind.learns and kind.samples:
        room = [config.tokenizer.sample * weight / sum(weights) for weight in weights]
        texts = chain.from_iterable(map(sample, read, room, repeat(cache_folder(config.cache))))
    tokenizer = build_tokenizer(config.tokenizer, texts)
    if config.packing not in STREAMS:
        tokenizer = tokenizer.with_pad()
    if config.label_field:
        for _ in chain.from_iterable(noted):  # those that the tokenizer did not read
            pass
        tokenizer = tokenizer.with_labels(classes.names())
    return tokenizer


def rows_from(
    source: str | Corpus | Iterable[str | tuple[str, str]],
    tokenizer: Tokenizer,
    config: DataConfig,
) -> Rows:
    """Rows of a source (cached) or of given texts or pairs (in memory), packed as the configuration says.

    A source is detokenized as the configuration says; texts are taken as they are.
    """
    if isinstance(source, str):
        pairs = config.paired
        source = opened_pairs(source, config) if pairs else open_corpus(source, fields_of(config))
    if isinstance(source, Corpus):
        corpus = finite(detokenized(source, config))
        return _rows(_Part.all_of(corpus), tokenizer, config)
    if not isinstance(source, Iterable):
        raise UnmaskError("text is measured as a list of texts or pairs, or the name of a source")
    documents = [_document(text, number, config) for number, text in enumerate(source, start=1)]
    texts = [text for text in documents if text and not text.isspace()]
    if not texts:
        raise UnmaskError("the texts are empty")
    return _in_memory(texts, tokenizer, config)


def _document(given: object, number: int, config: DataConfig) -> str:
    """A text or a pair as a user gives it, to a model that reads it."""
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
            f"text {number} is a pair, and this model reads no sources: give the text alone"
        )
    return pair_of(source, target, f"pair {number}", ("source", "target"))


def first_rows(corpus: Corpus, tokenizer: Tokenizer, config: DataConfig, limit: int) -> Rows:
    """The first rows of a corpus that is packed as a stream, reading no more of it than they need."""
    return _in_memory(detokenized(corpus, config), tokenizer, config, limit)


def _in_memory(
    documents: Iterable[str], tokenizer: Tokenizer, config: DataConfig, limit: int | None = None
) -> Rows:
    totals = Totals()
    tables = list(pack(documents, tokenizer, config.length, _packer(config), totals, limit))
    return Rows(np.concatenate(tables), totals, _layout(config))


def pairs_from(source: str | None, config: DataConfig) -> Iterator[Pair]:
    """The pairs of a source, or (None) those that the configuration validates on.

    A source is read strictly: a score of a part of a set is not the set's.
    """
    if source or config.valid:
        corpus = opened_pairs(source or config.valid, replace(config, corrupt=0.0))
        documents = iter(finite(corpus))
    else:
        corpora = (opened_pairs(portion.text, config) for portion in config.portions)
        parts = (corpus.part(config.holdout, held=True) for corpus in corpora)
        documents = chain.from_iterable(parts)
    return (document for document in documents if isinstance(document, Pair))


def _layout(config: DataConfig) -> Layout:
    return Layout(config.paired, config.paired and config.fill_target)


def _packer(config: DataConfig) -> str:
    return "pairs" if config.paired else config.packing


def _rows(part: _Part, tokenizer: Tokenizer, config: DataConfig) -> Rows:
    """The cached rows of a part of a corpus, tokenised now if they are not there."""
    folder, layout = cache_folder(config.cache), _layout(config)
    # fill_target only says which of the same tokens are valid
    pairs = {"source_field": config.source_field, "target_field": config.target_field}
    key = cache_key(
        {
            **(pairs if config.paired else {}),
            "content": part.corpus.digest,
            "part": part.which,
            "tokenizer": tokenizer.fingerprint,
            "length": config.length,
            "packing": _packer(config),
            "separator": config.separator,
            "text_field": config.text_field,
            "label_field": config.label_field,
            "detokenizer": config.detokenizer,
        }
    )
    rows = stored_rows(folder, key, config.length, layout)
    if rows is None:
        with making(folder, key) as alone:
            # another process may have made them meanwhile
            rows = stored_rows(folder, key, config.length, layout)
            if rows is None:
                _make_rows(part, folder, key, alone, tokenizer, config)
                rows = stored_rows(folder, key, config.length, layout)
    if rows is None:
        raise UnmaskError(f"the cache in {folder} vanished while it was read; run again")
    replace(rows.faults, allowed=config.corrupt).check()
    return rows


def _make_rows(
    part: _Part, folder: Path, key: str, alone: bool, tokenizer: Tokenizer, config: DataConfig
) -> None:
    # A row begins with its count of valid tokens, which is at most the length.
    largest = max(tokenizer.vocabulary.size, config.length)
    made = UnfinishedRows(folder, key, largest, alone)

    def tables(encode: Encode) -> Iterator[Table]:
        begun = (tokenizer, config.length, _packer(config), made.totals)
        yield from pack(part.to_pack(), *begun, place=made.place, encode=encode)
        made.totals.faults = part.corpus.faults

    with encoding(tokenizer, config.workers) as encode:
        made.write(tables(encode))


def first_sources(data: Data, count: int) -> list[str]:
    """The sources of the first pairs to validate on, as the tokenizer spells them."""
    some = range(min(count, len(data.valid)))
    x, given = data.valid[some][0], data.valid.given(some)
    assert given is not None
    return [data.tokenizer.decode(row[seen]) for row, seen in zip(x, given, strict=True)]
