"""Megabytes of text per second that one core tokenises, against the `tokenizers` library by itself.

Prints one JSON line for each tokenizer. Before the timing, the ids must equal those of the library.

- `cold`: a tokenizer that has read no text yet.
- `warm`: the same text again.
- `packed`: from documents to framed rows, cold.
"""

import json
import os
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
from tokenizers import Tokenizer as Backend

from benchmarks.room import script_parser
from unmask.data.data_config import DataConfig
from unmask.data.documents.fields import Fields
from unmask.data.rows.packing import pack
from unmask.data.rows.row_counts import Totals
from unmask.data.sources.open_source import open_corpus
from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.data.tokenizers.subwords import SubwordTokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer, TokenizerConfig

BLOCK = 1024  # documents
LENGTH = 1024  # tokens of a row


def documents(source: str, separator: str, megabytes: float) -> list[str]:
    """The first documents of a source."""
    taken, size = [], 0
    for document in open_corpus(source, Fields(separator, DataConfig.text_field)):
        taken.append(document)
        size += len(document.encode())
        if size >= megabytes * 1e6:
            break
    return taken


def blocks(texts: list[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    return iter(lambda: list(islice(rest, BLOCK)), [])


def library(tokenizer: SubwordTokenizer) -> Callable[[list[str]], list[np.ndarray]]:
    """The `encode_batch` of the library for the same tokenizer."""
    backend = Backend.from_str(tokenizer.files()["tokenizer.json"])
    backend.encode_special_tokens = True

    def encode_batch(texts: list[str]) -> list[np.ndarray]:
        encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, np.uint32) for encoding in encodings]

    return encode_batch


def check(tokenizer: Tokenizer, texts: list[str]) -> None:
    """Checks that the package's ids equal the library's."""
    if isinstance(tokenizer, SubwordTokenizer):
        theirs = library(tokenizer)
        for block in blocks(texts):
            pairs = zip(tokenizer.encode_batch(block), theirs(block), strict=True)
            assert all(np.array_equal(*pair) for pair in pairs)


def seconds(work: Iterable[object]) -> float:
    """Processor seconds of an iteration over `work`."""
    start = time.process_time()
    for _ in work:
        pass
    return time.process_time() - start


def measure(tokenizer: Tokenizer, texts: list[str], repeats: int) -> dict[str, float]:
    """The median megabytes per second of each way. The ways take turns."""
    taken: dict[str, list[float]] = {}
    for _ in range(repeats):
        fresh, packing = (pickle.loads(pickle.dumps(tokenizer)) for _ in range(2))
        work = {
            "cold": map(fresh.encode_batch, blocks(texts)),
            "warm": map(fresh.encode_batch, blocks(texts)),
            "packed": pack(texts, packing, LENGTH, "wrap", Totals()),
        }
        if isinstance(tokenizer, SubwordTokenizer):
            work["library"] = map(library(tokenizer), blocks(texts))
        for way, each in work.items():
            taken.setdefault(way, []).append(seconds(each))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    return {way: megabytes / statistics.median(each) for way, each in taken.items()}


def tokenizers(folders: list[str], size: int, texts: list[str]) -> Iterator[tuple[str, Tokenizer]]:
    """One of each kind, and those in Hugging Face's folders."""
    for kind in ("bpe", "bytes", "characters"):
        yield kind, build_tokenizer(TokenizerConfig(kind, size), texts)
    for folder in folders:
        yield folder, build_tokenizer(TokenizerConfig("hf", path=folder), texts)


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("source", nargs="?", default="builtin:pydoc", help="as data.train")
    add("--separator", default=DataConfig.separator, help="as data.separator")
    add("--megabytes", type=float, default=10, help="most text to read")
    add("--size", type=int, default=8192, help="ids of the BPE")
    add("--hf", nargs="*", default=[], help="folders of further tokenizers")
    add("--repeats", type=int, default=5)
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts = documents(args.source, args.separator, args.megabytes)
    for name, tokenizer in tokenizers(args.hf, args.size, texts):
        check(tokenizer, texts)
        rates = measure(tokenizer, texts, args.repeats)
        row = {f"{way}_mb_a_second": round(rate, 2) for way, rate in rates.items()}
        print(json.dumps({"tokenizer": os.path.basename(name), **row}), flush=True)
