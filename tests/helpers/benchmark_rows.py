"""Runs of benchmarks in their own process, and the JSON lines that they print."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def finished(
    room: str, *options: object, code: int = 0, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """A command of a room that ends with this exit code."""
    command = [sys.executable, str(BENCHMARKS / room), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def rows(room: str, *options: object) -> list[dict]:
    """The JSON lines that a script prints in its own process."""
    return parsed(finished(room, *options).stdout)


def parsed(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
