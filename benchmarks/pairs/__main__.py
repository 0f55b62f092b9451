"""Tables of models of pairs: `python benchmarks/pairs`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])
from benchmarks.room import main  # noqa: E402

TABLES = (
    "encoder_decoder --table encoder_decoder_multi30k.jsonl",
    "encoder_decoder --table encoder_decoder_e2e.jsonl",
)
sys.exit(main(__file__, TABLES))
