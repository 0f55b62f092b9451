"""Names of models on the Hugging Face hub, and a check that the hub is reachable."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from unmask.imports import extra

_PART = r"[A-Za-z0-9][\w.-]*"
_REVISION = r"(?:@(?!\S*\.\.)\w[\w./-]*)?"  # a branch, a tag or a commit
_OWNED = re.compile(rf"({_PART}/{_PART}){_REVISION}")
_BARE = re.compile(rf"hf:({_PART}(?:/{_PART})?{_REVISION})")


def hub_name(model: str | Path) -> str | None:
    """The hub name of a model, with its revision if it has one ("owner/name@v1").

    None for a local path: it exists, its parent folder exists, or it begins with runs/.
    """
    if isinstance(model, Path):
        return None
    if bare := _BARE.fullmatch(model):
        return bare[1]
    owned = _OWNED.fullmatch(model)
    if not owned or Path(model).exists() or Path(owned[1]).parent.is_dir():
        return None
    if model.startswith("runs/"):  # a run folder of another working directory
        return None
    return model


def at_revision(name: str) -> tuple[str, str | None]:
    """A hub name without its revision, and the revision or None."""
    name, _, revision = name.partition("@")
    return name, revision or None


def reachable(purpose: str, group: str = "data") -> bool:
    """True if the hub's address can be resolved, or if a proxy is set, which does that instead."""
    hub: Any = extra("huggingface_hub.constants", purpose, group)
    try:
        return bool(getproxies() or socket.getaddrinfo(urlsplit(hub.ENDPOINT).hostname, 443))
    except OSError:
        return False


@contextmanager
def offline_if_unreachable(datasets: Any, purpose: str) -> Iterator[None]:
    """Uses only cached datasets if the hub cannot be reached, instead of waiting for timeouts."""
    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or not reachable(purpose)
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
