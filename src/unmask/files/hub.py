"""Names on the Hugging Face hub, and the hub's reachability."""

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


def reachable(purpose: str, group: str = "data") -> bool:
    """Whether the hub's address is known here; behind a proxy it may be, unknown to us."""
    hub: Any = extra("huggingface_hub.constants", purpose, group)
    try:
        return bool(getproxies() or socket.getaddrinfo(urlsplit(hub.ENDPOINT).hostname, 443))
    except OSError:
        return False


@contextmanager
def asked_once(datasets: Any, purpose: str) -> Iterator[None]:
    """Where the hub cannot be reached, its datasets are those kept here, and no other is waited for."""
    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or not reachable(purpose)
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
