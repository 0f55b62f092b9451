"""unmask serve: models over HTTP."""

import argparse
import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.parser import Commands, Parser, given
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    import socket

    from fastapi import APIRouter

    from unmask.serve.execution.engine import Engine
    from unmask.serve.limits import ServerLimits

TOKEN = "UNMASK_TOKEN"
TIMEOUT = 300.0  # seconds
_LIMITS = {
    "body": ("--max-body", int, "BYTES", "the largest body of a request (1048576)"),
    "length": ("--max-length", int, "N", "the longest text, in tokens (2048)"),
    "texts": ("--max-texts", int, "N", "the most texts of a request (16)"),
    "steps": ("--max-steps", int, "N", "the most denoising steps (1024)"),
    "draws": ("--max-draws", int, "N", "the most draws of a likelihood (64)"),
    "grace": ("--grace", float, "SECONDS", "for running requests, when told to stop (10)"),
}


def add(commands: Commands) -> None:
    summary = "serve models over HTTP: OpenAI's completions, gaps, likelihoods, every step"
    parser = commands.add_parser("serve", help=summary, description=summary)
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a run folder, an exported model or a shipped one; NAME=MODEL names it",
    )
    add_address(parser, 8000)
    add_limits(parser)
    parser.set_defaults(execute=execute)


def add_address(parser: Parser, port: int) -> None:
    """Where to listen, and to whom."""
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="the address to listen at (this machine only)")
    add("--port", type=int, default=port, metavar="N", help=f"0: any that is free ({port})")
    add(
        "--token-file",
        metavar="FILE",
        help=f"holds the token that every request must bring; or set ${TOKEN}",
    )
    add(
        "--no-token",
        action="store_true",
        help="let anybody in, beyond this machine too: something in front must keep strangers out",
    )


def add_limits(parser: Parser) -> None:
    """How much is computed, for how many, and how."""
    group = parser.add_argument_group("limits", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    add("--active", type=int, metavar="N", help="requests answered side by side (32)")
    add("--waiting", type=int, metavar="N", help="more that may wait; those beyond get 429 (32)")
    add("--timeout", type=float, metavar="SECONDS", help="for the answer to a request (300)")
    for name, (option, kind, metavar, text) in _LIMITS.items():
        add(option, dest=name, type=kind, metavar=metavar, help=text)
    add(
        "--no-constraints",
        action="store_false",
        dest="constraints",
        help="refuse regex, ban and include, which can take seconds to work out",
    )
    group = parser.add_argument_group("arithmetic", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    add("--device", help="cpu, cuda, mps; by default the best there is")
    add(
        "--precision",
        metavar="TYPE",
        help="of the arithmetic: fp32 (default), bf16, or auto, the fastest that is native",
    )
    add("--workers", type=int, metavar="N", help="network passes side by side (one a CPU core)")


def execute(args: Namespace) -> None:
    from unmask.serve.limits import ServerLimits, check_capacity, is_loopback

    models = named(args.models)
    token = read_token(args.token_file)
    local = is_loopback(args.host)
    if not local and token is None and not args.no_token:
        raise UnmaskError(
            f"{args.host} can be reached from elsewhere, and there is no token: set {TOKEN}, give "
            "--token-file, or --no-token if something in front keeps strangers out"
        )
    settings = ServerLimits(
        token=token, local=local and not args.no_token, **given(args, "constraints", *_LIMITS)
    )
    limits = given(args, "active", "waiting", "timeout", "workers")
    check_capacity(**limits)  # before any model is loaded

    def ready(address: str) -> None:
        print(f"serving {', '.join(models)} at {address} (documentation: {address}/docs)")

    needs("serving")
    with listen(args.host, args.port) as listening:
        start(models, listening, settings, ready, given(args, "device", "precision"), limits)


def needs(purpose: str) -> None:
    """Names what is to be installed, if it is not there."""
    from unmask.imports import extra

    for module in ("fastapi", "uvicorn", "prometheus_client"):
        extra(module, purpose, "serve")


def listen(host: str, port: int) -> "socket.socket":
    """The address that was asked for, taken before any model is loaded."""
    from unmask.serve.server import bind

    try:
        return bind(host, port)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UnmaskError(
            f"cannot listen at port {port} of {host} ({reason}): give another --port, or 0 for a "
            "free one"
        ) from None


def start(
    models: dict[str, str],
    listening: "socket.socket",
    settings: "ServerLimits",
    ready: Callable[[str], None],
    loading: dict[str, Any],
    limits: dict[str, Any],
    routers: "Callable[[Engine], Sequence[APIRouter]]" = lambda engine: (),
) -> None:
    """Serves models by name until told to stop; `ready` is called with the address."""
    from unmask.backbones.layers.packed_batch import round_alike
    from unmask.model import load
    from unmask.serve.app import create_app
    from unmask.serve.execution.engine import Engine
    from unmask.serve.server import address, serve

    round_alike()
    loaded = {name: load(path, **loading) for name, path in models.items()}
    engine = Engine(loaded, **{"timeout": TIMEOUT, **limits})
    app = create_app(engine, settings, routers(engine))
    serve(app, engine, settings, listening, lambda: ready(address(listening)))


def named(models: Sequence[str]) -> dict[str, str]:
    """Models by the names that clients use: the last part of a path, or NAME as in NAME=MODEL."""
    found: dict[str, str] = {}
    for model in models:
        name, equals, path = model.partition("=")
        if Path(model).exists():  # whatever its name holds
            name, path = Path(model).resolve().name, model
        elif not equals:
            name, path = model, model
        if name in found:
            raise UnmaskError(f"two models are called {name!r}: name them, as NAME=MODEL")
        found[name] = path
    return found


def read_token(file: str | None) -> str | None:
    """The token, from a file or the environment: arguments can be read by everybody on a machine."""
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise UnmaskError(f"{file} holds no token: it is no text") from None
    if not token:
        raise UnmaskError(f"{file} holds no token")
    return token
