"""Models that ship with the package, one folder each, made with `unmask export` and `unmask card`."""

import json
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.extension import extensions
from unmask.imports import INSTALL_MODELS

OTHERS = ("smol", "stories-ar")  # models of the package unmask-models
NAMES = ("stories", "wiki", "code", *OTHERS)
MODEL, CARD = "model.json", "card.json"
_MODEL_FILES = (MODEL, "config.yaml")  # an exported folder has the first, a run folder the second
_FOLDER = Path(__file__).parent
_CLONE = Path(__file__).parents[3] / "models" / "unmask_models"


def _others() -> Path:
    """The folder of the package unmask-models: that of the clone, or the installed one."""
    found = None if _CLONE.is_dir() else find_spec(_CLONE.name)
    return Path(found.origin).parent if found and found.origin else _CLONE


def known() -> dict[str, Path]:
    """The folder of each model of the packages unmask and unmask-models, and of extensions."""
    others = _others()
    folders = {name: (others if name in OTHERS else _FOLDER) / name for name in NAMES}
    for extension in extensions():
        for name in extension.models:
            own = extension.folder / "shipped" / name
            folders[name] = own if own.is_dir() else _FOLDER / name
    return folders


def names() -> list[str]:
    """Names of the shipped models that this installation has."""
    return [name for name, path in known().items() if (path / MODEL).is_file()]


def folder(name: str) -> Path:
    """The folder of a shipped model."""
    if name not in names():
        raise UnmaskError(f"the model {name!r} is not in this installation: {remedy(name)}")
    return known()[name]


def remedy(name: str) -> str:
    """The line that installs a missing model, or trains it."""
    if name in OTHERS:
        return INSTALL_MODELS
    return f"install a complete package, or train the model ('unmask train {recipe(name)}')"


def recipe(name: str) -> str:
    """Name of the recipe that trains a shipped model."""
    return "adapt" if name == "smol" else name.replace("-ar", "-autoregressive")


def twin(name: str) -> str | None:
    """Name of the autoregressive model of the same text as a shipped model; None without one."""
    return other if (other := f"{name}-ar") in names() else None


def locate(model: str | Path) -> Path:
    """The folder or GGUF file of a model: a path, or a shipped model's name if no model is at that path."""
    path = Path(model)
    if str(model) in known() and not any((path / file).is_file() for file in _MODEL_FILES):
        return folder(str(model))
    if not (path.is_dir() or (path.suffix == ".gguf" and path.is_file())):
        shipped = ", ".join(names()) or "none in this installation"
        if near := get_close_matches(str(model), names(), n=1):
            raise UnmaskError(f"no model {str(model)!r}; did you mean {near[0]!r}?")
        raise UnmaskError(
            f"no model {str(model)!r}: give a run folder, an exported folder, a GGUF file or a shipped model "
            f"({shipped})"
            + ("" if "/" in str(model) else f", or 'hf:{model}' of the Hugging Face hub")
        )
    return path


def card(name: str) -> dict[str, Any]:
    """The measurements of a shipped model; empty without a card file."""
    file = folder(name) / CARD
    facts: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return facts


def size(name: str) -> int:
    """Size of a shipped model on disk, in bytes."""
    return sum(path.stat().st_size for path in folder(name).rglob("*") if path.is_file())
