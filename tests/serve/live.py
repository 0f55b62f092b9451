"""A server on a free port of this machine, in a thread."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unmask.serve.app import create_app
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits
from unmask.serve.server import Server, address, bind


class Live:
    """A running server, its address and its engine."""

    def __init__(self, engine: Engine, settings: ServerLimits, routers=()) -> None:
        self.engine = engine
        self.started = threading.Event()
        self.listening = bind("127.0.0.1", 0)
        self.url = address(self.listening)
        self.port = self.listening.getsockname()[1]
        app = create_app(engine, settings, routers)
        self.server = Server(app, engine, settings, self.started.set)
        self.thread = threading.Thread(target=self.server.run, args=([self.listening],))

    def stop(self) -> None:
        self.server.should_exit = True

    def until_idle(self) -> bool:
        """Waits until no job is left. Returns False after a time limit."""
        return eventually(lambda: not self.engine.jobs)


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Waits until a condition holds. A server writes logs and counts after the
    client has its response.
    """
    end = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return held


@contextmanager
def live(engine: Engine, routers=(), **settings: object) -> Iterator[Live]:
    running = Live(engine, ServerLimits(**settings), routers)
    running.thread.start()
    try:
        assert running.started.wait(10)
        yield running
    finally:
        running.stop()
        running.thread.join(20)
        running.listening.close()
        assert not running.thread.is_alive()
