"""Models that come with the package: a folder each, as `unmask export` and `unmask card` write them."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

NAMES = ("stories", "stories-ar", "wiki")
MODEL, CARD = "model.json", "card.json"
_MODEL_FILES = (MODEL, "config.yaml")  # an exported folder has the first, a run the second
_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The models that this installation holds."""
    return [name for name in NAMES if (_FOLDER / name / MODEL).is_file()]


def folder(name: str) -> Path:
    """Where a shipped model lies."""
    if name not in names():
        raise UnmaskError(
            f"the model {name!r} ships with unmask, but this installation was built without it: "
            f"install a complete one, or train it ('unmask train {recipe(name)}')"
        )
    return _FOLDER / name


def recipe(name: str) -> str:
    """The recipe that trains a shipped model."""
    return name.replace("-ar", "-autoregressive")


def locate(model: str | Path) -> Path:
    """The folder of a model: one that holds a model wins over a shipped model of that name."""
    path = Path(model)
    if str(model) in NAMES and not any((path / file).is_file() for file in _MODEL_FILES):
        return folder(str(model))
    if not path.is_dir():
        shipped = ", ".join(names()) or "none in this installation"
        if near := get_close_matches(str(model), names(), n=1):
            raise UnmaskError(f"no model {str(model)!r}; did you mean {near[0]!r}?")
        raise UnmaskError(
            f"no model {str(model)!r}: give a run folder, an exported folder or a shipped model "
            f"({shipped})"
        )
    return path


def card(name: str) -> dict[str, Any]:
    """What is known of a shipped model; nothing if nobody has measured it."""
    file = folder(name) / CARD
    facts: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return facts


def size(name: str) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_size for path in folder(name).rglob("*") if path.is_file())
