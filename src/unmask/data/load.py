"""From a data configuration to a tokenizer and rows."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from unmask.data.cache import cache_folder, cache_key, store_rows, stored_rows
from unmask.data.config import STREAMS, DataConfig
from unmask.data.corpora import Corpus, open_corpus
from unmask.data.detokenizers import DETOKENIZERS
from unmask.data.files import Reading
from unmask.data.labels import Labelled, class_names
from unmask.data.packing import Totals, pack
from unmask.data.pairs import Pair, pair_of, sides
from unmask.data.rows import Layout, Rows
from unmask.data.subwords import SubwordTokenizer
from unmask.data.tokenizer import Tokenizer
from unmask.data.tokenizers import build_tokenizer
from unmask.errors import UnmaskError


@dataclass(frozen=True)
class Data:
    """What a run trains on and is validated on."""

    tokenizer: Tokenizer
    train: Rows
    valid: Rows


def load_data(config: DataConfig, tokenizer: Tokenizer | None = None) -> Data:
    """The rows of a configuration; without a tokenizer one is built, on training documents only."""
    corpus = _opened(config.train, config)
    if config.valid:
        train, train_part = partial(iter, corpus), "all"
        valid = _opened(config.valid, config)
        valid_rows = partial(_rows, valid, partial(iter, valid), "all")
    else:
        train, train_part = partial(corpus.part, config.holdout, False), f"but {config.holdout!r}"
        held = partial(corpus.part, config.holdout, True)
        valid_rows = partial(_rows, corpus, held, f"only {config.holdout!r}")
    if tokenizer is None:
        source = config.tokenizer.source
        texts = sides(_opened(source, config) if source else train())
        tokenizer = build_tokenizer(config.tokenizer, texts)
        if config.packing not in STREAMS and isinstance(tokenizer, SubwordTokenizer):
            tokenizer = tokenizer.with_pad()
        if config.label_field:
            tokenizer = tokenizer.with_labels(class_names(train(), config.label_field))
    train_rows = _rows(corpus, train, train_part, tokenizer, config)
    return Data(tokenizer, train_rows, valid_rows(tokenizer, config))


def rows_from(
    source: str | Corpus | Iterable[str | tuple[str, str]],
    tokenizer: Tokenizer,
    config: DataConfig,
) -> Rows:
    """Rows of a source (cached) or of given texts or pairs (in memory), packed as the configuration says.

    A source is detokenized as the configuration says; texts are taken as they are.
    """
    if isinstance(source, str):
        paired = config.paired
        source = _open_pairs(source, config) if paired else open_corpus(source, _reading(config))
    if isinstance(source, Corpus):
        corpus = _detokenized(source, config)
        return _rows(corpus, partial(iter, corpus), "all", tokenizer, config)
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
    return _in_memory(_detokenized(corpus, config), tokenizer, config, limit)


def _in_memory(
    documents: Iterable[str], tokenizer: Tokenizer, config: DataConfig, limit: int | None = None
) -> Rows:
    totals = Totals()
    tables = list(pack(documents, tokenizer, config.length, _packer(config), totals, limit))
    return Rows(np.concatenate(tables), totals, _layout(config))


def _open_pairs(source: str, config: DataConfig) -> Corpus:
    """The pairs that a source holds in the fields of the configuration."""
    corpus = open_corpus(source, _reading(config))
    if not corpus.has_fields:
        raise UnmaskError(
            f"{corpus.name} is plain text, which has no field {config.source_field!r}: pairs need "
            "JSON lines, CSV, TSV, Parquet, hf: or parallel files such as train.{de,en}"
        )
    return corpus


def pairs_from(source: str | None, config: DataConfig) -> Iterator[Pair]:
    """The pairs of a source, or (None) those that the configuration validates on."""
    if source or config.valid:
        documents = iter(_open_pairs(source or config.valid, config))
    else:
        documents = _open_pairs(config.train, config).part(config.holdout, held=True)
    return (document for document in documents if isinstance(document, Pair))


def _reading(config: DataConfig) -> Reading:
    return Reading(
        config.separator,
        config.text_field,
        config.label_field,
        config.source_field,
        config.target_field,
    )


def _layout(config: DataConfig) -> Layout:
    return Layout(config.paired, config.paired and config.fill_target)


def _packer(config: DataConfig) -> str:
    return "pairs" if config.paired else config.packing


def _opened(source: str, config: DataConfig) -> Corpus:
    """A corpus of the run, which must be able to hold the classes or pairs that the configuration asks for."""
    if config.paired:
        return _open_pairs(source, config)
    corpus = open_corpus(source, _reading(config))
    if config.label_field and not corpus.has_fields:
        raise UnmaskError(
            f"{corpus.name} is plain text, which has no field {config.label_field!r}: "
            "data.label_field needs JSON lines, CSV, TSV, Parquet or hf:"
        )
    return _detokenized(corpus, config)


def _detokenized(corpus: Corpus, config: DataConfig) -> Corpus:
    """The corpus with its documents as they are measured."""
    if not config.detokenizer:
        return corpus
    detokenize = DETOKENIZERS.build(config.detokenizer)

    def read() -> Iterator[str]:
        for document in corpus.read():
            text = detokenize(document)
            yield Labelled(text, document.label) if isinstance(document, Labelled) else text

    return replace(corpus, read=read)


def _rows(
    corpus: Corpus,
    documents: Callable[[], Iterable[str]],
    part: str,
    tokenizer: Tokenizer,
    config: DataConfig,
) -> Rows:
    """The cached rows of a part of a corpus, tokenised now if they are not there."""
    folder, layout = cache_folder(config.cache), _layout(config)
    # fill_target only says which of the same tokens are valid
    pairs = {"source_field": config.source_field, "target_field": config.target_field}
    key = cache_key(
        {
            **(pairs if config.paired else {}),
            "content": corpus.digest,
            "part": part,
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
        totals = Totals()
        tables = pack(documents(), tokenizer, config.length, _packer(config), totals)
        # A row begins with its count of valid tokens, which is at most the length.
        store_rows(folder, key, tables, totals, max(tokenizer.vocabulary.size, config.length))
        rows = stored_rows(folder, key, config.length, layout)
    if rows is None:
        raise UnmaskError(f"the cache in {folder} vanished while it was read; run again")
    return rows
