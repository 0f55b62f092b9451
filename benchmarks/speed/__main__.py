"""Tables of speed and memory: `python benchmarks/speed`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])
from benchmarks.room import main  # noqa: E402

TABLES = (
    "beside_authors --table authors.jsonl",
    "plan",
    "length_speed --table length_speed_h200.jsonl",
    "length_speed --table length_speed_cpu.jsonl",
    "length_speed --table length_speed_aarch64.jsonl",
)
sys.exit(main(__file__, TABLES))
