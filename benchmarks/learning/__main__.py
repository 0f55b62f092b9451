"""Tables of learning: `python benchmarks/learning`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])
from benchmarks.room import main  # noqa: E402

TABLES = (
    "passes --table passes.jsonl",
    "per_step --table learning.jsonl",
    "per_step --table self_conditioning.jsonl --against modern",
    "time_to_bound --table time_to_bound.jsonl",
    "sizes --out sizes --table",
    "own_text --table own_text.jsonl",
    "baselines --out baselines --table",
)
sys.exit(main(__file__, TABLES))
