"""unmask serve: an HTTP server of models."""

import argparse
import os
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.parser import Commands, Parser, add_examples, given
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    import socket

    from fastapi import APIRouter

    from unmask.serve.execution.engine import Engine
    from unmask.serve.limits import ServerLimits

GROUP = "serve and share"

TOKEN = "UNMASK_TOKEN"
TIMEOUT = 300.0  # seconds
LOG_LEVELS = ("debug", "info", "warning", "error")
_LIMITS = {
    "body": ("--max-body", int, "BYTES", "largest body of a request, bytes (1048576)"),
    "length": ("--max-length", int, "N", "longest text, tokens (2048)"),
    "texts": ("--max-texts", int, "N", "most texts of a request (16)"),
    "steps": ("--max-steps", int, "N", "most denoising steps (1024)"),
    "draws": ("--max-draws", int, "N", "most noise draws of a likelihood (64)"),
    "constraint_budget": (
        *("--constraint-budget", float, "FACTOR"),
        "limits of time and memory of a regex, schema or phrases, times this number (1)",
    ),
    "grace": ("--grace", float, "SECONDS", "seconds for running requests after a stop signal (3)"),
}


def add(commands: Commands) -> None:
    summary = "serve models over HTTP: OpenAI's completions, infilling, likelihoods, streams"
    parser = commands.add_parser("serve", help=summary, description=summary)
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="run folder, exported or shipped model; NAME=MODEL sets its name for clients",
    )
    add_address(parser, 8000)
    add_limits(parser)
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default="info",
        help="least severe messages of the log: debug, info (one line for each request), warning or error "
        "(info)",
    )
    add_examples(
        parser,
        "unmask serve stories mine=runs/demo --port 8000",
        "unmask serve stories --host 0.0.0.0 --token-file token.txt --timeout 60",
    )
    parser.set_defaults(execute=execute)


def add_address(parser: Parser, port: int) -> None:
    """Adds the options of address and access."""
    add = parser.add_argument_group("address and access").add_argument
    add("--host", default="127.0.0.1", help="address to listen at (127.0.0.1, this machine only)")
    add("--port", type=int, default=port, metavar="N", help=f"port, 0 for any free one ({port})")
    add(
        "--token-file",
        metavar="FILE",
        help=f"file of the token that every request must carry; or set ${TOKEN}",
    )
    add(
        "--no-token",
        action="store_true",
        help="accept requests without a token from other machines too; use it behind a proxy with access control",
    )


def add_limits(parser: Parser) -> None:
    """Adds the options of limits and arithmetic."""
    group = parser.add_argument_group("limits", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    add("--active", type=int, metavar="N", help="requests that run at the same time (32)")
    add(
        "--waiting", type=int, metavar="N", help="requests that may wait; further ones get 429 (32)"
    )
    add("--timeout", type=float, metavar="SECONDS", help="time limit of a request, seconds (300)")
    for name, (option, kind, metavar, text) in _LIMITS.items():
        add(option, dest=name, type=kind, metavar=metavar, help=text)
    add(
        "--no-constraints",
        action="store_false",
        dest="constraints",
        help="refuse regex, ban and include, which can take seconds to compile",
    )
    group = parser.add_argument_group("arithmetic", argument_default=argparse.SUPPRESS)
    add = group.add_argument
    add("--device", help="cpu, cuda or mps; by default the fastest available")
    add(
        "--precision",
        metavar="TYPE",
        help="precision of the network: fp32, bf16, or auto for the fastest native one (fp32)",
    )
    add(
        "--workers",
        type=int,
        metavar="N",
        help="network passes at the same time (one per CPU core)",
    )


def execute(args: Namespace) -> None:
    from unmask.serve.limits import ServerLimits, check_capacity, is_loopback

    models = models_by_name(args.models)
    token = read_token(args.token_file)
    local = is_loopback(args.host)
    if not local and token is None and not args.no_token:
        raise UnmaskError(
            f"{args.host} can be reached from other machines, and there is no token: set {TOKEN}, give "
            "--token-file, or --no-token behind a proxy with access control"
        )
    settings = ServerLimits(
        token=token, local=local and not args.no_token, **given(args, "constraints", *_LIMITS)
    )
    limits = given(args, "active", "waiting", "timeout", "workers")
    check_capacity(**limits)  # before any model is loaded

    def ready(address: str) -> None:
        print(f"serving {', '.join(models)} at {address} (documentation: {address}/docs)")

    check_installed("serving")
    with log_to_stderr(args.log_level), listen(args.host, args.port) as listening:
        start(models, listening, settings, ready, given(args, "device", "precision"), limits)


@contextmanager
def log_to_stderr(level: str) -> Iterator[None]:
    """Writes the log of the server to stderr, with the time of each line."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("unmask.serve.middleware")
    log.addHandler(handler)
    log.setLevel(level.upper())
    try:
        yield
    finally:
        log.removeHandler(handler)


def check_installed(purpose: str) -> None:
    """Raises an error with the extra to install if a package of the server is missing."""
    from unmask.imports import extra

    for module in ("fastapi", "uvicorn", "prometheus_client"):
        extra(module, purpose, "serve")


def listen(host: str, port: int) -> "socket.socket":
    """A socket at the address; called before models are loaded, so that an error comes at once."""
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
    """Serves models by name until a stop signal; `ready` is called with the address."""
    from unmask.backbones.layers.packed_batch import set_strict_mkl_rounding
    from unmask.model import load
    from unmask.serve.app import create_app
    from unmask.serve.execution.engine import Engine
    from unmask.serve.server import address, serve

    set_strict_mkl_rounding()
    # a model's file may not raise the limits of the clients
    budget = {"constraint_budget": settings.constraint_budget}
    loaded = {name: load(path, **loading) for name, path in models.items()}
    loaded = {
        name: replace(model, defaults={**model.defaults, **budget})
        for name, model in loaded.items()
    }
    engine = Engine(loaded, **{"timeout": TIMEOUT, **limits})
    app = create_app(engine, settings, routers(engine))
    serve(app, engine, settings, listening, lambda: ready(address(listening)))


def models_by_name(models: Sequence[str]) -> dict[str, str]:
    """Paths of models by their names for clients: the last part of a path, or NAME of NAME=MODEL."""
    found: dict[str, str] = {}
    for model in models:
        name, equals, path = model.partition("=")
        if Path(model).exists():  # also a path with "=" in it
            name, path = Path(model).resolve().name, model
        elif not equals:
            name, path = model, model
        if not name:
            raise UnmaskError(f"{model!r} has no name before =: give NAME=MODEL")
        if name in found:
            raise UnmaskError(f"two models are called {name!r}: give them names, as NAME=MODEL")
        found[name] = path
    return found


def read_token(file: str | None) -> str | None:
    """The token from a file or the environment; other users could read it among the arguments."""
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, IsADirectoryError):
        raise UnmaskError(f"no file {file}: write the token in a file, and name it") from None
    except UnicodeDecodeError:
        raise UnmaskError(
            f"{file} holds no token: it is no UTF-8 text; write the token in it"
        ) from None
    if not token:
        raise UnmaskError(f"{file} holds no token: it is empty; write the token in it")
    return token
