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
LAST_EVENTS = 5.0  # seconds for the last events of cancelled streams


def protocol(read: float, write: float) -> type[H11Protocol]:
    """HTTP/1.1 with time limits for receiving the headers and for sending the response.

    Args:
        read: seconds for the headers of a request to arrive.
        write: seconds for a client to read a part of the response.
    """

    class TimedProtocol(H11Protocol):
        _read_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_read_timer()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            if self._read_timer is None and (before is None or before.response_complete):
                self._start_read_timer()  # first bytes of the next request
            super().data_received(data)
            if self.cycle is not before:
                self._cancel_read_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_read_timer()
            self._cancel_write_timer()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            # close() would wait for the client without a limit
            self._write_timer = self.loop.call_later(write, self.transport.abort)

        def resume_writing(self) -> None:
            self._cancel_write_timer()
            super().resume_writing()

        def _start_read_timer(self) -> None:
            self._read_timer = self.loop.call_later(read, self.transport.close)

        def _cancel_read_timer(self) -> None:
            if self._read_timer is not None:
                self._read_timer.cancel()
                self._read_timer = None

        def _cancel_write_timer(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

    return TimedProtocol


class Server(uvicorn.Server):
    """uvicorn with a shutdown that gives running jobs a grace period, then stops them."""

    def __init__(
        self, app: FastAPI, engine: Engine, settings: ServerLimits, started: Callable[[], None]
    ) -> None:
        # After this time each stream has sent its last event, unless its client does not read.
        timeout = round(settings.grace + LAST_EVENTS)
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol(settings.read, settings.write),
                ws="none",
                log_level="warning",
                timeout_graceful_shutdown=timeout,
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
        self._captured_signals.clear()  # so that uvicorn does not raise it again: exit code 0

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
