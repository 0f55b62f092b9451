"""What a run writes down: JSON lines always, and what its loggers take."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.files.jsonl import JsonLines
from unmask.training.logs.loggers import Logger

# Everything in these is a function of (seed, step, row), except for the clock's file.
LOGS = ("log.jsonl", "samples.jsonl", "clock.jsonl")


class Log:
    """log.jsonl, samples.jsonl and clock.jsonl of a run, and its loggers."""

    def __init__(self, run: Path, loggers: Sequence[Logger] = (), written: bool = True) -> None:
        self.written = written  # by this process, of several
        self.loggers = loggers
        self.lines, self.texts, self.clock = (JsonLines(run / name) for name in LOGS)

    def numbers(self, record: Mapping[str, Any]) -> None:
        """A line of measurements."""
        self._write(self.lines, record)

    def samples(self, record: Mapping[str, Any]) -> None:
        """A line of generated texts."""
        self._write(self.texts, record)

    def times(self, record: Mapping[str, Any]) -> None:
        """A line of what depends on the machine, which the other files leave out."""
        self._write(self.clock, record)

    def close(self) -> None:
        for logger in self.loggers:
            logger.close()

    def _write(self, file: JsonLines, record: Mapping[str, Any]) -> None:
        if not self.written:
            return
        file.write(record)
        for logger in self.loggers:
            logger.write(record)


def log_sizes(run: Path) -> dict[str, int]:
    """How far each log goes: what of it belongs to a checkpoint that is taken now."""
    files = [run / name for name in LOGS]
    return {file.name: file.stat().st_size for file in files if file.exists()}


def read_log(run: Path) -> list[dict[str, Any]]:
    """The lines of log.jsonl, those with a loss completed by the clock's."""
    files = [JsonLines(run / name).read() for name in ("clock.jsonl", "log.jsonl")]
    times, lines = ([line for line in file if isinstance(line.get("step"), int)] for file in files)
    clock = {record["step"]: record for record in times}
    return [line | clock.get(line["step"], {}) if "loss" in line else line for line in lines]
