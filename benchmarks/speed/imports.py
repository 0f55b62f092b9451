"""Start-up time of `import unmask` and `unmask --help`, each in fresh processes.

Prints one JSON line for each: the median seconds minus those of an empty program, the limit, and the slow libraries
that were imported.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.room import script_parser

WAYS = {
    "import unmask": "import unmask",
    "unmask --help": "from unmask.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
}
MOST_SECONDS = 0.3
SLOW = ("torch", "numpy", "tokenizers", "transformers", "datasets", "rich", "yaml")
REPORT = f"\nimport sys\nprint(*(name for name in {SLOW} if name in sys.modules), file=sys.stderr)"


def run(program: str) -> tuple[float, list[str]]:
    """The seconds of a fresh process, and the slow libraries that it imported."""
    start = time.perf_counter()
    command = [sys.executable, "-c", program + REPORT]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, done.stderr.split()


def rows(repeats: int) -> Iterator[dict]:
    """One row for each program. The programs take turns with an empty one."""
    empty: list[float] = []
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    imported: dict[str, list[str]] = {}
    for _ in range(repeats + 1):  # the first writes Python's bytecode cache
        empty.append(run("")[0])
        for way, program in WAYS.items():
            seconds, imported[way] = run(program)
            taken[way].append(seconds)
    for way, seconds in taken.items():
        own = statistics.median(seconds[1:]) - statistics.median(empty[1:])
        yield {"way": way, "seconds": round(own, 3), "most": MOST_SECONDS, "slow": imported[way]}


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    for row in rows(parser.parse_args().repeats):
        print(json.dumps(row), flush=True)
