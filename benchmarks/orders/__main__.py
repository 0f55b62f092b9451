"""Tables of learned orders: `python benchmarks/orders`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])
from benchmarks.room import main  # noqa: E402

TABLES = ("learned_order --table learned_order.jsonl",)
sys.exit(main(__file__, TABLES))
