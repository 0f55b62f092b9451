"""Tables of the texts of trained models: `python benchmarks/quality`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])
from benchmarks.room import main  # noqa: E402

TABLES = (
    "failure_modes --table failure_modes.jsonl",
    "code_filling --table code_filling.jsonl",
    "code_filling --table code_filling_unseen.jsonl",
    "families --table families.jsonl",
)
sys.exit(main(__file__, TABLES))
