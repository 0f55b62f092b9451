"""What a server allows: sizes, times, and who may ask."""

import ipaddress
import math
from dataclasses import dataclass

from unmask.errors import UnmaskError

LEAST_TOKEN = 16  # characters: shorter ones can be guessed


@dataclass(frozen=True)
class ServerLimits:
    """The limits of a request; one beyond them is refused before any network call."""

    token: str | None = None  # that every request but /healthz must bring
    body: int = 1 << 20  # bytes
    read: float = 10.0  # seconds in which a request must have arrived
    write: float = 30.0  # seconds that a client may leave a part of its answer unread
    grace: float = 10.0  # seconds that running requests have when the server is told to stop
    length: int = 2048  # tokens of a text, prompt included, and of all texts to score together
    texts: int = 16  # that a request may ask for
    steps: int = 1024
    draws: int = 64
    constraints: bool = True  # regex, ban and include, which can take seconds to work out
    local: bool = True  # answers only requests that name this machine, unless they bring the token

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < LEAST_TOKEN:
            raise UnmaskError(f"the token is too short: take {LEAST_TOKEN} characters or more")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise UnmaskError("the token must be printable ASCII: it travels in a header")
        for name in ("body", "read", "write", "length", "texts", "steps", "draws"):
            _check(name, getattr(self, name))
        _check("grace", self.grace, zero=True)


def check_capacity(
    active: int = 1, waiting: int = 0, timeout: float | None = None, workers: int | None = None
) -> None:
    """Refuses an engine that could answer nobody."""
    _check("active", active)
    _check("waiting", waiting, zero=True)
    for name, value in (("timeout", timeout), ("workers", workers)):
        if value is not None:
            _check(name, value)


def _check(name: str, value: float, zero: bool = False) -> None:
    """A limit is a number above zero, or at zero where that means something."""
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise UnmaskError(f"{name} must be {'0 or more' if zero else 'positive'}, not {value}")


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    name, bracket, _ = header.partition("]")
    return name + bracket if bracket else header.partition(":")[0]
