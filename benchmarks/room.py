"""The command of a room of benchmarks.

`python benchmarks/ROOM` prints the tables of the room from its stored rows, and `python benchmarks/ROOM NAME …` runs
one of its scripts.
"""

import argparse
import ast
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError

FOLDER = Path(__file__).parent
CUT_OFF = 141  # exit code of a program whose reader, such as head, has ended
SHARED: dict[str, dict[str, Any]] = {
    "out": {"type": Path, "metavar": "FILE", "help": "a file to which rows are added"},
    "table": {"type": Path, "nargs": "+", "metavar": "FILE", "help": "print files of rows"},
    "plot": {"type": Path, "metavar": "PNG", "help": "draw the files of --table"},
    "tiny": {"action": "store_true", "help": "tiny sizes, to try the script"},
}


def script_parser(doc: str | None, *shared: str) -> argparse.ArgumentParser:
    """A parser that a script's docstring describes, with some of the options of `SHARED`."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in shared:
        parser.add_argument(f"--{name}", **SHARED[name])
    return parser


def again(file: str) -> list[str]:
    """The command that runs a script of a room in a new process."""
    return [sys.executable, *script(file)]


def script(file: str) -> list[str]:
    """Folder and name of a script, as Python and torchrun take them."""
    return [str(Path(file).parent), Path(file).stem]


def main(file: str, tables: Iterable[str] = ()) -> int:
    """Runs the command of a room. Errors of a user are one line; a reader that stops early is no error.

    Args:
        file: `__file__` of the room's `__main__`.
        tables: Scripts with the options that print their stored rows; a name of a stored file stands for its path.

    Returns:
        The exit code.
    """
    room = Path(file).parent
    name, *options = sys.argv[1:] or ["--table"]
    try:
        if name == "--table":
            for line in tables:
                print(f"\n# python benchmarks/{room.name} {line}\n", flush=True)
                name, *options = shlex.split(line)
                run(room, name, [_stored(room, part) for part in options])
            code = 0
        elif (room / f"{name}.py") in scripts(room):
            code = run(room, name, options)
        else:
            print(f"python benchmarks/{room.name} NAME …, and NAME --help; NAME is one of\n")
            for path in scripts(room):
                doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
                print(f"  {path.stem:<18} {doc.partition(chr(10))[0]}")
            code = 0 if name in ("-h", "--help") else 2
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CUT_OFF
    except (UnmaskError, FileNotFoundError) as error:
        print(f"{room.name} {name}: error: {error}", file=sys.stderr)
        code = 2
    return code


def scripts(room: Path) -> list[Path]:
    """The files of a room that have a command."""
    files = sorted(room.glob("[!_]*.py"))
    return [path for path in files if "\ndef main(" in path.read_text("utf-8")]


def _stored(room: Path, part: str) -> str:
    return str(room / part) if (room / part).exists() else part


def run(room: Path, name: str, options: Sequence[str]) -> int:
    """Runs a script in this process. It is imported by its name, so that its functions can be sent to other processes."""
    sys.argv = [f"benchmarks/{room.name} {name}", *options]
    return import_module(f"benchmarks.{room.name}.{name}").main() or 0
