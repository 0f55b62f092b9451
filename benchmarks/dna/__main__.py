"""Tables of DNA models: `python benchmarks/dna`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])
from benchmarks.room import main  # noqa: E402

TABLES = (
    "tables --runs . --table",
    "enhancers --table enhancers.jsonl",
    "speed --out speed.jsonl --table",
)
sys.exit(main(__file__, TABLES))
