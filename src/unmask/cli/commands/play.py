"""unmask play: the playground in a browser."""

import argparse
import threading
import webbrowser
from argparse import Namespace
from typing import TYPE_CHECKING

from unmask.cli.commands.serve import listen, named, needs, start
from unmask.cli.parser import Commands, given
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    import socket

    from fastapi import APIRouter

    from unmask.serve.execution.engine import Engine

HOST, PORT = "127.0.0.1", 8770


def add(commands: Commands) -> None:
    summary = "watch text form and edit it, in the browser"
    parser = commands.add_parser("play", help=summary, description=summary)
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="*",
        help="a run folder, an exported model or a shipped one, also as NAME=MODEL; "
        "all that ship unless given",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help=f"of this machine only ({PORT}, or any free one if that is taken)",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address and open nothing"
    )
    parser.add_argument(
        "--device", default=argparse.SUPPRESS, help="cpu, cuda, mps; by default the best there is"
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask.serve.limits import ServerLimits

    models = named(args.models or _shipped())
    needs("the playground")

    def ready(address: str) -> None:
        print(f"the playground is at {address} (Ctrl-C ends it)", flush=True)
        if not args.no_browser:  # some browsers return only when they are closed
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    def routers(engine: "Engine") -> "list[APIRouter]":
        from unmask.play.page_routes import router

        return [router(engine)]

    settings = ServerLimits(grace=1.0)  # whoever ends the playground has seen enough
    with _listen(getattr(args, "port", None)) as listening:
        start(models, listening, settings, ready, given(args, "device"), {}, routers)


def _shipped() -> list[str]:
    """All models that this installation holds, by name."""
    from unmask import shipped

    if names := shipped.names():
        return names
    raise UnmaskError(
        "no model ships with this installation: train one ('unmask train demo', some minutes) and "
        "play with it ('unmask play runs/demo')"
    )


def _listen(port: int | None) -> "socket.socket":
    """The port that was asked for, or the usual one, or any that is free."""
    if port is not None:
        return listen(HOST, port)
    from unmask.serve.server import bind

    try:
        return bind(HOST, PORT)
    except OSError:
        return bind(HOST, 0)
