"""What a run writes down: JSON lines always, TensorBoard on request."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

# The fields of a log line that depend on the machine, not on (seed, step, row).
TIMING = ("seconds", "tokens_per_second")


class JsonLines:
    """A file of one JSON object a line, each with its `step`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one line; the file is closed again, so a kill loses nothing."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """Every whole line; one that was cut short by a kill or a full disk is left out."""
        if not self.path.exists():
            return []
        records = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
        return records

    def drop_after(self, step: int) -> None:
        """Forget lines beyond the step a run resumes from: it will write them again."""
        kept = [record for record in self.read() if record["step"] <= step]
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
        shorter = self.path.with_suffix(".tmp")
        shorter.write_text(lines, encoding="utf-8")
        os.replace(shorter, self.path)


class TensorBoard:
    """The same numbers for TensorBoard, in `folder`."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UnmaskError(
                "training.tensorboard needs a package that is not installed: "
                "pip install 'unmask[log]'"
            ) from None
        self.writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, record: Mapping[str, Any]) -> None:
        """Numbers as curves named by their dotted place, lists of texts as texts."""
        self._enter(record, "", record["step"])

    def close(self) -> None:
        self.writer.close()

    def _enter(self, tree: Mapping[str, Any], prefix: str, step: int) -> None:
        for key, value in tree.items():
            if isinstance(value, Mapping):
                self._enter(value, f"{prefix}{key}/", step)
            elif isinstance(value, list):
                self.writer.add_text(f"{prefix}{key}", "\n\n---\n\n".join(map(str, value)), step)
            elif isinstance(value, int | float) and key != "step":
                self.writer.add_scalar(f"{prefix}{key}", value, step)


class Log:
    """log.jsonl and samples.jsonl of a run, cut back to `step`, and TensorBoard if asked for."""

    def __init__(self, run: Path, step: int, tensorboard: bool) -> None:
        self.board = TensorBoard(run / "tensorboard", step) if tensorboard else None
        self.lines = JsonLines(run / "log.jsonl")
        self.texts = JsonLines(run / "samples.jsonl")
        for file in (self.lines, self.texts):
            if file.path.exists():
                file.drop_after(step)

    def numbers(self, record: Mapping[str, Any]) -> None:
        """A line of measurements."""
        self._write(self.lines, record)

    def samples(self, record: Mapping[str, Any]) -> None:
        """A line of generated texts."""
        self._write(self.texts, record)

    def close(self) -> None:
        if self.board:
            self.board.close()

    def _write(self, file: JsonLines, record: Mapping[str, Any]) -> None:
        file.write(record)
        if self.board:
            self.board.write(record)
