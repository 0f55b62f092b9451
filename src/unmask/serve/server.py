"""Runs the application in uvicorn, with connection timeouts and a graceful shutdown."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import cast

import uvicorn
from fastapi import FastAPI

from unmask.errors import UnmaskError
from unmask.serve.connection import protocol
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import MOST_PORT, ServerLimits

LAST_EVENTS = 1.0  # seconds for the last events of stopped streams
LAST_STEPS = 0.5  # seconds for threads and the process to end after that
STUCK = 1  # exit code of a process that ended without one of its requests


class LastResort:
    """Ends the process if it has not ended by itself some time after a stop signal.

    A thread can be inside a call of a library that no signal interrupts, and Python waits for its
    threads before it exits.

    Args:
        seconds: from the signal to the end of the process.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._signalled, self._ended = threading.Event(), threading.Event()
        # started here, because a thread cannot always be started in a signal handler
        threading.Thread(target=self._watch, name="last resort", daemon=True).start()

    def begin(self) -> None:
        """Starts the time; called by the signal handler."""
        self._signalled.set()

    def cancel(self) -> None:
        """Leaves the process to end by itself."""
        self._ended.set()
        self._signalled.set()

    def _watch(self) -> None:
        self._signalled.wait()
        if not self._ended.wait(self._seconds):
            line = (
                f"unmask: error: a request did not end within {self._seconds:g} seconds of the stop "
                "signal: the process ended without it\n"
            )
            os.write(2, line.encode())  # another thread may hold the lock of sys.stderr
            os._exit(STUCK)


class Server(uvicorn.Server):
    """uvicorn with a shutdown that gives running jobs a grace period, then stops them."""

    def __init__(
        self,
        app: FastAPI,
        engine: Engine,
        settings: ServerLimits,
        started: Callable[[], None],
        signalled: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol(settings.read, settings.write),
                ws="none",
                log_level="warning",
                # After this time each stream has sent its last event, unless its client does not
                # read. uvicorn declares whole seconds, and passes them to asyncio.wait_for.
                timeout_graceful_shutdown=cast(int, settings.grace + LAST_EVENTS),
                server_header=False,
            )
        )
        self._engine, self._grace, self._started = engine, settings.grace, started
        self._signalled = signalled

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called at SIGTERM and Ctrl-C."""
        self._signalled()
        super().handle_exit(sig, frame)

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
    """Serves until SIGTERM or Ctrl-C, then closes the engine.

    The process ends at most `settings.grace + LAST_EVENTS + LAST_STEPS` seconds after the signal.
    """
    last_resort = LastResort(settings.grace + LAST_EVENTS + LAST_STEPS)
    try:
        Server(app, engine, settings, started, last_resort.begin).run([listening])
    finally:
        engine.close()
        last_resort.cancel()
