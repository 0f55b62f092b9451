"""JSON Lines files: one JSON object per line."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class JsonLines:
    """A JSON Lines file of records."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends one record and closes the file, so that a later kill loses nothing."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All complete records. An incomplete line, left by a kill or a full disk, is skipped."""
        if not self.path.exists():
            return []
        records = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                records.append(record)
        return records


def whole_lines(content: bytes) -> bool:
    """True if every line is a complete JSON object."""
    try:
        return all(isinstance(json.loads(line), dict) for line in content.splitlines())
    except (ValueError, RecursionError):
        return False


def finite_json(value: Any) -> Any:
    """The value with None in place of infinity and NaN, which JSON lacks, at any depth."""
    if isinstance(value, Mapping):
        return {name: finite_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
