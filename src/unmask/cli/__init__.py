"""The command `unmask`. A user error prints one line to standard error and exits with code 2."""

import atexit
import gc
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

from unmask import extension
from unmask.cli.output.terminal import replace_unencodable
from unmask.cli.parser import Commands, GroupedCommands, Parser
from unmask.errors import UnmaskError, UnmaskWarning, unknown
from unmask.registry import PLUGINS
from unmask.runtime.cores import limit_threads
from unmask.version import __version__

# the core's commands by module of `cli.commands`; a module is imported when one of its commands runs
_COMMANDS = {
    "generate": ("generate", "fill", "edit"),
    "chat": ("chat",),
    "train": ("train", "config"),
    "evaluate": ("evaluate",),
    "serve": ("serve",),
    "convert": ("export", "convert"),
    "card": ("card",),
    "runs": ("runs", "check"),
    "plan": ("plan",),
    "listing": ("models", "list"),
}
# deprecated commands of version 0.1, which `unmask list` replaces; 0.2 removes them
_LISTS = (
    *("recipes", "methods", "samplers", "grids", "schedules", "time-samplers", "backbones"),
    *("loggers", "tokenizers", "sources", "formats"),
)

_START = """\
start here:
  unmask generate stories --watch           generate a story with a shipped model, step by step
  unmask fill stories "Tom has [MASK:2]."   fill the gaps of a text
  unmask play                               open the playground in the browser
  unmask train demo                         train a small model on a bundled corpus
  unmask generate runs/demo                 generate text with it
  unmask serve stories                      serve a model over HTTP
"""

_OUT_OF_MEMORY = (
    *("std::bad_alloc", "can't start new thread", "failed to map segment"),
    *("cannot allocate memory", "can't allocate memory", "not enough memory"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 success, 2 user error, 130 Ctrl-C, 141 closed pipe."""
    # otherwise garbage collection at exit visits all objects of torch, which takes half a second
    atexit.register(gc.freeze)
    limit_threads()
    replace_unencodable()
    try:
        args = _parse(sys.argv[1:] if argv is None else argv)
        with _warnings_in_one_line():
            args.execute(args)
        print(end="", flush=True)  # raises an error here if standard output is closed (>&-)
    except BrokenPipeError:
        # the reader closed the pipe; without this the flush at exit would print an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (UnmaskError, OSError) as error:
        return _fail(f"error: {error}", 2)
    except (MemoryError, RuntimeError, ImportError) as error:
        if not _lacks_memory(error):
            raise
        reason = "out of memory: free memory, or raise the limit of the process (ulimit -v)"
        return _fail(f"error: {reason}", 2)
    except KeyboardInterrupt as stop:
        return _fail("; ".join(["interrupted", *map(str, stop.args)]), 130)
    return 0


def command_modules() -> dict[str, str]:
    """Each command of the core and of extensions, with its module."""
    own = f"{__name__}.commands"
    return {
        **{name: f"{own}.{module}" for module, names in _COMMANDS.items() for name in names},
        **extension.commands(),
    }


def build_parser(modules: Iterable[str] = ()) -> tuple[Parser, Commands]:
    """The parser of `unmask`, and its sub-parsers action with the commands of some or all modules."""
    parser = Parser(
        prog="unmask",
        description="Train, evaluate and serve masked diffusion language models; generate and infill text.",
        epilog=_START,
    )
    parser.add_argument("--version", action="version", version=f"unmask {__version__}")
    parser.add_argument(
        "--plugin",
        metavar="FILE",
        help="Python file or module that registers components; repeatable, give it before the command",
    )
    found = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, action=GroupedCommands
    )
    added = cast(GroupedCommands, found)
    for name in modules or dict.fromkeys(command_modules().values()):
        module = import_module(name)
        added.group = getattr(module, "GROUP", "more")
        module.add(added)
    return parser, added


def _parse(argv: Sequence[str]) -> Namespace:
    while len(argv) > 1 and argv[0] == "--plugin":
        # in the environment, so that child processes import the plugins too
        plugins = filter(None, (os.environ.get(PLUGINS), argv[1]))
        os.environ[PLUGINS] = os.pathsep.join(plugins)
        argv = argv[2:]
    if not argv or argv[0].startswith("-"):
        return build_parser()[0].parse_args(argv)
    if argv[0] in _LISTS:
        argv = ["list", *argv]
        print(
            f"unmask: warning: 'unmask {argv[1]}' is now 'unmask list {argv[1]}'; version 0.2 removes "
            "the old command",
            file=sys.stderr,
        )
    known = command_modules()
    if argv[0] not in known:
        raise unknown("command", argv[0], known, 0.6)
    return build_parser([known[argv[0]]])[0].parse_args(argv)


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Prints warnings of unmask on one line, without file and line number."""
    with warnings.catch_warnings():
        original = warnings.showwarning

        def show(message: Any, category: type[Warning], *location: Any, **more: Any) -> None:
            if issubclass(category, UnmaskWarning):
                print(f"unmask: warning: {message}", file=sys.stderr)
            else:
                original(message, category, *location, **more)

        warnings.showwarning = show
        yield


def _lacks_memory(error: Exception) -> bool:
    """True for the errors of Python, of C++ libraries and of the loader that lack of memory causes."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or any(one in words for one in _OUT_OF_MEMORY)


def _fail(message: str, code: int) -> int:
    print(f"unmask: {message}", file=sys.stderr)
    return code
