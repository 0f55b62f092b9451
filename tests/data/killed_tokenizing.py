"""Tokenises a file in small blocks: once undisturbed,
then several times with a kill after some blocks.
"""

import itertools
import os
import signal
import sys
from dataclasses import replace

from unmask.data import load
from unmask.data.data_config import DataConfig
from unmask.data.load import load_data
from unmask.data.rows import encode as blocks
from unmask.data.rows import row_cache as cache
from unmask.data.tokenizers.tokenizer import TokenizerConfig


def tokenise(source: str, folder: str, packing: str, after: int) -> None:
    """Prints the number of blocks, unless it is killed after `after` blocks."""
    made = 0
    pack = load.pack

    def killed(*args, **options):
        nonlocal made
        for table in pack(*args, **options):
            yield table
            made += 1
            if made == after:
                os.kill(os.getpid(), signal.SIGKILL)

    load.pack = killed
    config = DataConfig(source, source, tokenizer=TokenizerConfig("bytes"), length=20, cache=folder)
    load_data(replace(config, packing=packing, separator="line"))
    print(made, flush=True)


def main() -> None:
    source, folders, packings, *kills = sys.argv[1:]
    blocks._BLOCK, blocks._PIECE, cache._PROGRESS_BLOCKS = 300, 100, 2
    runs = [("whole", 0), *(("killed", int(kill)) for kill in kills)]
    for packing, (name, after) in itertools.product(packings.split(","), runs):
        folder = f"{folders}/{packing}-{name}"
        child = os.fork()
        if not child:
            tokenise(source, folder, packing, after)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print("status", status, sorted(os.listdir(folder)), flush=True)


if __name__ == "__main__":
    main()
