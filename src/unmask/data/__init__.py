"""Text to rows of tokens: tokenizers, corpora, packing, a memory-mapped cache, a resumable loader."""

from unmask.data.blanks import count_blanks, parse_blanks
from unmask.data.characters import ByteTokenizer, CharacterTokenizer, Text8Tokenizer
from unmask.data.config import DataConfig, TokenizerConfig
from unmask.data.corpora import Corpus, open_corpus
from unmask.data.labels import LabelDropout
from unmask.data.load import Data, load_data, pairs_from, rows_from
from unmask.data.loader import Loader
from unmask.data.pairs import Pair
from unmask.data.rows import Rows, batches
from unmask.data.subwords import SubwordTokenizer
from unmask.data.tokenizer import Tokenizer
from unmask.data.tokenizers import build_tokenizer, load_tokenizer

__all__ = [
    "ByteTokenizer",
    "CharacterTokenizer",
    "Corpus",
    "Data",
    "DataConfig",
    "LabelDropout",
    "Loader",
    "Pair",
    "Rows",
    "SubwordTokenizer",
    "Text8Tokenizer",
    "Tokenizer",
    "TokenizerConfig",
    "batches",
    "build_tokenizer",
    "count_blanks",
    "load_data",
    "load_tokenizer",
    "open_corpus",
    "pairs_from",
    "parse_blanks",
    "rows_from",
]
