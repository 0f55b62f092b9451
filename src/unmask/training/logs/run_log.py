"""Log files of a run as JSON lines, and its loggers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.files.jsonl import JsonLines
from unmask.training.logs.loggers import Logger

# The first two are functions of (seed, step, row); clock.jsonl depends on the machine.
LOGS = ("log.jsonl", "samples.jsonl", "clock.jsonl")


class Log:
    """log.jsonl, samples.jsonl and clock.jsonl of a run, and its loggers."""

    def __init__(self, run: Path, loggers: Sequence[Logger] = (), enabled: bool = True) -> None:
        self.enabled = enabled  # False in all processes but one
        self.loggers = loggers
        self.lines, self.texts, self.clock = (JsonLines(run / name) for name in LOGS)

    def numbers(self, record: Mapping[str, Any]) -> None:
        """Writes a line of measurements."""
        self._write(self.lines, record)

    def samples(self, record: Mapping[str, Any]) -> None:
        """Writes a line of generated texts."""
        self._write(self.texts, record)

    def times(self, record: Mapping[str, Any]) -> None:
        """Writes a line of timings, which depend on the machine."""
        self._write(self.clock, record)

    def close(self) -> None:
        for logger in self.loggers:
            logger.close()

    def _write(self, file: JsonLines, record: Mapping[str, Any]) -> None:
        if not self.enabled:
            return
        file.write(record)
        for logger in self.loggers:
            logger.write(record)


def log_sizes(run: Path) -> dict[str, int]:
    """The size of each log file in bytes, which a checkpoint records."""
    files = [run / name for name in LOGS]
    return {file.name: file.stat().st_size for file in files if file.exists()}


def read_log(run: Path) -> list[dict[str, Any]]:
    """The lines of log.jsonl; those with a loss also have the timings of clock.jsonl."""
    files = [JsonLines(run / name).read() for name in ("clock.jsonl", "log.jsonl")]
    times, lines = ([line for line in file if isinstance(line.get("step"), int)] for file in files)
    clock = {record["step"]: record for record in times}
    return [line | clock.get(line["step"], {}) if "loss" in line else line for line in lines]
