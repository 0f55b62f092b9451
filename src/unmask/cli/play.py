"""unmask play: the playground in a browser."""

import argparse
import socket
import threading
import webbrowser
from argparse import Namespace

from unmask.cli.parser import Commands, given
from unmask.cli.serve import named
from unmask.errors import UnmaskError

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
    from unmask.data.extras import extra

    models = named(args.models or _shipped())
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        extra(module, "the playground", "serve")
    from unmask.api import load
    from unmask.play import router
    from unmask.serve.app import create_app
    from unmask.serve.engine import Engine
    from unmask.serve.server import address, serve
    from unmask.serve.settings import Settings

    def ready() -> None:
        where = address(listening)
        print(f"the playground is at {where} (Ctrl-C ends it)", flush=True)
        if not args.no_browser:  # some browsers return only when they are closed
            threading.Thread(target=webbrowser.open, args=[where], daemon=True).start()

    with _listen(getattr(args, "port", None)) as listening:
        engine = Engine(
            {name: load(path, **given(args, "device")) for name, path in models.items()}
        )
        settings = Settings(grace=1.0)  # whoever ends the playground has seen enough
        app = create_app(engine, settings, [router(engine)])
        serve(app, engine, settings, listening, ready)


def _shipped() -> list[str]:
    """All models that this installation holds, by name."""
    from unmask import shipped

    if names := shipped.names():
        return names
    raise UnmaskError(
        "no model ships with this installation: train one ('unmask train demo', some minutes) and "
        "play with it ('unmask play runs/demo')"
    )


def _listen(port: int | None) -> socket.socket:
    """The port that was asked for, or the usual one, or any that is free."""
    from unmask.serve.server import bind

    if port is not None and not 0 <= port <= 65535:
        raise UnmaskError(f"--port must lie in 0..65535, not {port}")
    try:
        return bind(HOST, PORT if port is None else port)
    except OSError as error:
        if port is not None:
            reason = (error.strerror or str(error)).lower()
            raise UnmaskError(
                f"cannot listen at port {port} ({reason}): give another --port, or none for a free one"
            ) from None
        return bind(HOST, 0)
