"""Opens the corpora of a data configuration and detokenizes their documents."""

from collections.abc import Iterator
from dataclasses import replace

from unmask.data.data_config import DataConfig
from unmask.data.documents.detokenizers import DETOKENIZERS
from unmask.data.documents.fields import Fields
from unmask.data.documents.labels import Labelled
from unmask.data.documents.regions import Regions
from unmask.data.sources.corpus import Corpus
from unmask.data.sources.open_source import open_corpus
from unmask.errors import UnmaskError


def opened(source: str, config: DataConfig, regions: Regions | None = None) -> Corpus:
    """The detokenized corpus of a source, or of regions of a genome.

    An error is raised if class labels or pairs are set for plain text.
    """
    if config.paired:
        return opened_pairs(source, config)
    corpus = open_corpus(source, fields_of(config, regions))
    if config.messages_field and not corpus.has_fields:
        raise UnmaskError(
            f"{corpus.name} is plain text, which has no field {config.messages_field!r}: "
            "data.messages_field needs JSON lines, Parquet or hf:"
        )
    if config.label_field and not corpus.has_fields:
        raise UnmaskError(
            f"{corpus.name} is plain text, which has no field {config.label_field!r}: "
            "data.label_field needs JSON lines, CSV, TSV, Parquet or hf:"
        )
    return detokenized(corpus, config)


def opened_pairs(source: str, config: DataConfig) -> Corpus:
    """The corpus of a source of pairs; an error if the source is plain text."""
    corpus = open_corpus(source, fields_of(config))
    if not corpus.has_fields:
        raise UnmaskError(
            f"{corpus.name} is plain text, which has no field {config.source_field!r}: pairs need "
            "JSON lines, CSV, TSV, Parquet, hf: or parallel files such as train.{de,en}"
        )
    return corpus


def detokenized(corpus: Corpus, config: DataConfig) -> Corpus:
    """The corpus with the configured detokenizer applied to each document; class labels stay."""
    if not config.detokenizer:
        return corpus
    detokenize = DETOKENIZERS.build(config.detokenizer)

    def detokenized_texts(documents: Iterator[str]) -> Iterator[str]:
        for document in documents:
            text = detokenize(document)
            yield Labelled(text, document.label) if isinstance(document, Labelled) else text

    read_on = (lambda start: detokenized_texts(corpus.documents(start))) if corpus.endless else None
    return replace(corpus, read=lambda: detokenized_texts(corpus.read()), read_on=read_on)


def finite(corpus: Corpus) -> Corpus:
    """The corpus; an error if it is an endless stream."""
    if corpus.endless:
        raise UnmaskError(f"{corpus.name} is a stream without an end: give a file or a folder")
    return corpus


def fields_of(config: DataConfig, regions: Regions | None = None) -> Fields:
    """The part of the configuration that turns files and records into documents."""
    return Fields(
        config.separator,
        config.text_field,
        config.label_field,
        config.source_field,
        config.target_field,
        config.messages_field,
        config.corrupt,
        window=config.window,
        regions=regions or Regions(),
    )
