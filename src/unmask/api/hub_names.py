"""Which names mean a model on the Hugging Face hub: told apart before any network call."""

import re
from pathlib import Path

_PART = r"[A-Za-z0-9][\w.-]*"
_REVISION = r"(?:@(?!\S*\.\.)\w[\w./-]*)?"  # a branch, a tag or a commit
_OWNED = re.compile(rf"({_PART}/{_PART}){_REVISION}")
_BARE = re.compile(rf"hf:({_PART}(?:/{_PART})?{_REVISION})")


def hub_name(model: str | Path) -> str | None:
    """The name on the hub, with its revision if it has one ("owner/name@v1").

    None of a place on this machine: a folder, or one beside others of a run.
    """
    if isinstance(model, Path):
        return None
    if bare := _BARE.fullmatch(model):
        return bare[1]
    owned = _OWNED.fullmatch(model)
    if not owned or Path(model).exists() or Path(owned[1]).parent.is_dir():
        return None
    if model.startswith("runs/"):  # where runs are, in another working folder
        return None
    return model


def at_revision(name: str) -> tuple[str, str | None]:
    """A name on the hub, and the revision that it asks for."""
    name, _, revision = name.partition("@")
    return name, revision or None
