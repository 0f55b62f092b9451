"""The page's server in a thread, on a free port of this machine."""

import socket
import threading
import time
from collections.abc import Mapping
from types import TracebackType

import uvicorn

from unmask import Model
from unmask.extensions.play.page_routes import router
from unmask.serve.app import create_app
from unmask.serve.execution.engine import Engine


class LocalServer:
    def __init__(self, models: Mapping[str, Model], port: int = 0) -> None:
        self.engine = Engine(models)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.app = create_app(self.engine, routers=[router(self.engine)])
        self._server = uvicorn.Server(uvicorn.Config(self.app, log_level="error", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def idle(self, within: float) -> bool:
        """True if all jobs end within some seconds."""
        patience = time.monotonic() + within
        while self.engine.jobs and time.monotonic() < patience:
            time.sleep(0.02)
        return self.engine.jobs == 0

    def __enter__(self) -> "LocalServer":
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._socket.close()
        self.engine.close()
