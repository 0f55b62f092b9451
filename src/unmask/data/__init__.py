"""Text to rows of tokens: tokenizers, corpora, packing, a memory-mapped cache, a resumable loader."""

from typing import TYPE_CHECKING

from unmask.data.absent import AbsentTokenizer
from unmask.data.blanks import count_blanks, parse_blanks
from unmask.data.characters import ByteTokenizer, CharacterTokenizer, Text8Tokenizer
from unmask.data.config import DataConfig, Portion, TokenizerConfig
from unmask.data.detokenizers import DETOKENIZERS
from unmask.data.labels import LabelDropout
from unmask.data.subwords import SubwordTokenizer
from unmask.data.tokenizer import Tokenizer
from unmask.data.tokenizers import build_tokenizer, load_tokenizer
from unmask.imports import lazy_exports

if TYPE_CHECKING:
    from unmask.data.corpora import Corpus, hub_corpus, open_corpus
    from unmask.data.files import Reading
    from unmask.data.lines import named
    from unmask.data.load import Data, first_rows, load_data, pairs_from, rows_from
    from unmask.data.loader import Loader
    from unmask.data.pairs import Pair
    from unmask.data.records import Columns, Form, Lines, Objects, file_corpus
    from unmask.data.rows import Rows, batches
    from unmask.data.shortening import ShortRows

__all__ = [
    "DETOKENIZERS",
    "AbsentTokenizer",
    "ByteTokenizer",
    "CharacterTokenizer",
    "Columns",
    "Corpus",
    "Data",
    "DataConfig",
    "Form",
    "LabelDropout",
    "Lines",
    "Loader",
    "Objects",
    "Pair",
    "Portion",
    "Reading",
    "Rows",
    "ShortRows",
    "SubwordTokenizer",
    "Text8Tokenizer",
    "Tokenizer",
    "TokenizerConfig",
    "batches",
    "build_tokenizer",
    "count_blanks",
    "file_corpus",
    "first_rows",
    "hub_corpus",
    "load_data",
    "load_tokenizer",
    "named",
    "open_corpus",
    "pairs_from",
    "parse_blanks",
    "rows_from",
]

# who has a tokenizer need not wait for what reads text to train on
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Columns": "unmask.data.records",
        "Corpus": "unmask.data.corpora",
        "Data": "unmask.data.load",
        "Form": "unmask.data.records",
        "Lines": "unmask.data.records",
        "Loader": "unmask.data.loader",
        "Objects": "unmask.data.records",
        "Pair": "unmask.data.pairs",
        "Reading": "unmask.data.files",
        "Rows": "unmask.data.rows",
        "ShortRows": "unmask.data.shortening",
        "batches": "unmask.data.rows",
        "file_corpus": "unmask.data.records",
        "first_rows": "unmask.data.load",
        "hub_corpus": "unmask.data.corpora",
        "load_data": "unmask.data.load",
        "named": "unmask.data.lines",
        "open_corpus": "unmask.data.corpora",
        "pairs_from": "unmask.data.load",
        "rows_from": "unmask.data.load",
    },
)
