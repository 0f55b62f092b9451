"""unmask play: the playground in a browser."""

import argparse
import threading
import webbrowser
from argparse import Namespace
from typing import TYPE_CHECKING

from unmask.cli.commands.serve import check_installed, listen, models_by_name, start
from unmask.cli.parser import Commands, add_examples, given
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    import socket

    from fastapi import APIRouter

    from unmask.serve.execution.engine import Engine

GROUP = "write"

HOST, PORT = "127.0.0.1", 8770


def add(commands: Commands) -> None:
    summary = "open the playground: watch generation and edit texts in the browser"
    parser = commands.add_parser("play", help=summary, description=summary)
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="*",
        help="run folder, exported or shipped model (default: all shipped models); NAME=MODEL sets its "
        "name on the page",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help=f"port on {HOST} (default: {PORT}, or a free port if {PORT} is taken)",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address without opening a browser"
    )
    parser.add_argument(
        "--device",
        default=argparse.SUPPRESS,
        help="cpu, cuda or mps; by default the fastest available",
    )
    add_examples(parser, "unmask play", "unmask play mine=runs/demo stories --no-browser")
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask.serve.limits import ServerLimits

    models = models_by_name(args.models or _shipped())
    check_installed("the playground")

    def ready(address: str) -> None:
        print(f"the playground is at {address} (Ctrl-C ends it)", flush=True)
        if not args.no_browser:  # in a thread: `open` can block until the browser is closed
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    def routers(engine: "Engine") -> "list[APIRouter]":
        from unmask.extensions.play.page_routes import router

        return [router(engine)]

    settings = ServerLimits(grace=1.0)  # seconds that running requests have after Ctrl-C
    with _listen(getattr(args, "port", None)) as listening:
        start(models, listening, settings, ready, given(args, "device"), {}, routers)


def _shipped() -> list[str]:
    """The names of all shipped models; raises an error if there are none."""
    from unmask import shipped

    if names := shipped.names():
        return names
    raise UnmaskError(
        "no model ships with this installation: train one with 'unmask train demo', then run "
        "'unmask play runs/demo'"
    )


def _listen(port: int | None) -> "socket.socket":
    """A socket at `port`. None is the default port, or a free port if that is taken."""
    if port is not None:
        return listen(HOST, port)
    from unmask.serve.server import bind

    try:
        return bind(HOST, PORT)
    except OSError:
        return bind(HOST, 0)
