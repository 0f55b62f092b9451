"""Whether the Hugging Face hub can be reached: its own libraries try for half a minute before they say no."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from unmask.data.extras import extra


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
