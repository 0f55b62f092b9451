"""Runs the application in uvicorn, with connection timeouts and a graceful shutdown."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from unmask.errors import UnmaskError
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits

MOST_PORT = 65535
LAST_WORDS = 5.0  # seconds for the last events of cancelled streams


def protocol(read: float, write: float) -> type[H11Protocol]:
    """HTTP/1.1 with time limits for receiving the headers and for sending the response.

    Args:
        read: seconds for the headers of a request to arrive.
        write: seconds for a client to read a part of the response.
    """

    class Impatient(H11Protocol):
        _late: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            if self._late is None and (before is None or before.response_complete):
                self._wait()  # first bytes of the next request
            super().data_received(data)
            if self.cycle is not before:
                self._begun()

        def connection_lost(self, exc: Exception | None) -> None:
            self._begun()
            self._taken()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            # close() would wait without limit for the client to read
            self._unread = self.loop.call_later(write, self.transport.abort)

        def resume_writing(self) -> None:
            self._taken()
            super().resume_writing()

        def _wait(self) -> None:
            self._late = self.loop.call_later(read, self.transport.close)

        def _begun(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _taken(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

    return Impatient


class Server(uvicorn.Server):
    """uvicorn with a shutdown that gives running jobs a grace period, then stops them."""

    def __init__(
        self, app: FastAPI, engine: Engine, settings: ServerLimits, started: Callable[[], None]
    ) -> None:
        # After this time every stream has sent its last event, or its client does not read.
        patience = round(settings.grace + LAST_WORDS)
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol(settings.read, settings.write),
                ws="none",
                log_level="warning",
                timeout_graceful_shutdown=patience,
                server_header=False,
            )
        )
        self._engine, self._grace, self._started = engine, settings.grace, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()

    async def _serve(self, sockets: list[socket.socket] | None = None) -> None:
        await super()._serve(sockets)
        self._captured_signals.clear()  # otherwise uvicorn raises the signal again: exit code 0

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        draining = asyncio.create_task(self._engine.drain(self._grace))
        await super().shutdown(sockets)
        await draining


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address; port 0 means any free port."""
    if not 0 <= port <= MOST_PORT:
        raise UnmaskError(f"--port must lie in 0..{MOST_PORT}, not {port}")
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def address(bound: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    app: FastAPI,
    engine: Engine,
    settings: ServerLimits,
    listening: socket.socket,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serves until SIGTERM or Ctrl-C, then closes the engine."""
    try:
        Server(app, engine, settings, started).run([listening])
    finally:
        engine.close()
