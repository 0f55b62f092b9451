"""Which names mean a model on the Hugging Face hub: told apart before any network call."""

import re
from pathlib import Path

_OWNED = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_BARE = re.compile(r"hf:([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)")


def hub_name(model: str | Path) -> str | None:
    """The name on the hub, or None of a place on this machine: a folder, or one beside others of a run."""
    if isinstance(model, Path):
        return None
    if bare := _BARE.fullmatch(model):
        return bare[1]
    if not _OWNED.fullmatch(model) or Path(model).exists() or Path(model).parent.is_dir():
        return None
    if model.startswith("runs/"):  # where runs are, in another working folder
        return None
    return model
