"""Limits and access rules of a server: sizes, timeouts, the token and the Host check."""

import ipaddress
import math
import re
from dataclasses import dataclass

from unmask.errors import UnmaskError

MOST_PORT = 65535
LEAST_TOKEN = 16  # characters; a shorter token can be guessed


@dataclass(frozen=True)
class ServerLimits:
    """Limits and access rules; a request over a size limit is refused before any network call."""

    token: str | None = None  # required of every request but /healthz; None = no token
    body: int = 1 << 20  # bytes of a request
    read: float = 10.0  # seconds for a request to arrive
    write: float = 30.0  # seconds for a client to read a part of the response
    grace: float = 3.0  # seconds that running requests have after SIGTERM
    length: int = 2048  # tokens of a text with its prompt, and of all texts of a score request
    texts: int = 16  # texts of a request
    steps: int = 1024  # sampler steps
    draws: int = 64  # noise draws of a score request
    constraints: bool = True  # allow regex, ban and include, which can take seconds to compile
    constraint_budget: float = 1.0  # limits of the cost of a constraint, times this
    local: bool = True  # without a token, accept only requests whose Host is this machine

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < LEAST_TOKEN:
            raise UnmaskError(f"the token is too short: use {LEAST_TOKEN} characters or more")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise UnmaskError("the token must be printable ASCII, because HTTP headers carry it")
        for name in (
            "body",
            "read",
            "write",
            "length",
            "texts",
            "steps",
            "draws",
            "constraint_budget",
        ):
            _check(name, getattr(self, name))
        _check("grace", self.grace, zero=True)


def check_capacity(
    active: int = 1, waiting: int = 0, timeout: float | None = None, workers: int | None = None
) -> None:
    """Raises an error if a setting of the engine is out of range."""
    _check("active", active)
    _check("waiting", waiting, zero=True)
    for name, value in (("timeout", timeout), ("workers", workers)):
        if value is not None:
            _check(name, value)


def _check(name: str, value: float, zero: bool = False) -> None:
    """Raises an error unless a limit is positive and finite, or zero where that is allowed."""
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise UnmaskError(f"{name} must be {'0 or more' if zero else 'positive'}, not {value}")


def is_loopback(host: str) -> bool:
    """True if a host is localhost or a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


_HOST = re.compile(
    r"(?:(?P<name>[0-9A-Za-z._-]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{1,5}))?"
)


def host_name(header: str) -> str | None:
    """The host in a Host header without brackets and port, or None if the header is malformed.

    The header must be `name`, `name:port`, `[address]` or `[address]:port` as a whole, with an
    IPv6 address in the brackets. Otherwise a parser of another program could find another host in it.
    """
    found = _HOST.fullmatch(header)
    if found is None or int(found["port"] or 0) > MOST_PORT:
        return None
    if found["address"] is None:
        return found["name"]
    try:
        return str(ipaddress.IPv6Address(found["address"]))
    except ValueError:
        return None
