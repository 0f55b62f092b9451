"""Files of one JSON object a line."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                records.append(record)
        return records


def whole_lines(content: bytes) -> bool:
    """Whether every line is one that `JsonLines` wrote to its end."""
    try:
        return all(isinstance(json.loads(line), dict) for line in content.splitlines())
    except (ValueError, RecursionError):
        return False


def finite_json(value: Any) -> Any:
    """A value for JSON, which has no infinity and no NaN: null stands for them, in lists and sections too."""
    if isinstance(value, Mapping):
        return {name: finite_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
