"""Peak memory of a process that tokenises a corpus into rows, for corpora of several sizes.

    python benchmarks/speed memory --megabytes 10 100 400

Writes documents of words drawn by Zipf's law and tokenises them, with a new process for each size. Prints one JSON line
for each size.
"""

import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.room import again, script_parser
from unmask.data.data_config import DataConfig
from unmask.data.load import load_data
from unmask.data.tokenizers.tokenizer import TokenizerConfig

WORDS, DOCUMENT, BLOCK = 50_000, 300, 1000


def write(path: Path, megabytes: int) -> None:
    """Writes documents of 300 words each, with a separator line between them."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, 1 + rng.poisson(5))) for _ in range(WORDS)]
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1e6:
            drawn = (rng.zipf(1.2, (BLOCK, DOCUMENT)) - 1) % WORDS
            for document in drawn:
                file.write(" ".join(words[i] for i in document) + "\n<|endoftext|>\n")


def tokenise(path: str, cache: str, kind: str, workers: int) -> None:
    """Tokenises a file in this process. Prints the rows, seconds and peak memory."""
    tokenizer = TokenizerConfig(kind, 4096, sample=10_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    config = DataConfig(path, tokenizer=tokenizer, length=1024, cache=cache, workers=workers)
    data = load_data(config)
    facts = {
        "megabytes": round(os.path.getsize(path) / 1e6),
        "kind": kind,
        "workers": workers,
        "rows": len(data.train),
        "seconds": round(time.perf_counter() - start, 1),
        "before_mib": round(before / 1024),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(facts), flush=True)


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--megabytes", type=int, nargs="+", default=[10, 100, 400])
    add("--kind", default="bpe", help="as data.tokenizer.kind")
    add("--workers", type=int, default=1, help="as data.workers")
    add("--of", nargs=2, help="a file and a cache folder: tokenise the file in this process")
    args = parser.parse_args()
    if args.of:
        tokenise(*args.of, args.kind, args.workers)
        return
    for size in args.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            corpus = Path(folder) / "corpus.txt"
            write(corpus, size)
            options = ["--kind", args.kind, "--workers", str(args.workers)]
            command = [*again(__file__), "--of", corpus, f"{folder}/cache", *options]
            subprocess.run(command, check=True)
