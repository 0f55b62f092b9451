"""Scripts of reliability: kills, damage, hostile input, several processes: `python benchmarks/reliability`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])
from benchmarks.room import main  # noqa: E402

sys.exit(main(__file__))
