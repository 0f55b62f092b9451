"""argparse, with complaints of one line and with dotted overrides."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

from unmask.errors import UnmaskError
from unmask.generation.logits_processor import LOGITS_PROCESSORS, processor_options
from unmask.generation.sampling_params import Sampling
from unmask.options import Option, options_of

T = TypeVar("T", int, float)
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

OVERRIDES = """\
Any field of the configuration can be set, as --section.field value:
  --training.steps 1000 --data.length 64 --backbone.width 128
A component is chosen by its name, which resets its fields to their defaults:
  --method sedd --schedule cosine
'unmask config RECIPE' prints every field with its value.
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are raised, and which can set long options that it does not know aside."""

    def __init__(self, *, overrides: bool = False, **settings: Any) -> None:
        if overrides:
            settings.update(usage="%(prog)s RECIPE [options] [--section.field value ...]")
            settings.update(epilog=OVERRIDES)
        layout = partial(argparse.RawDescriptionHelpFormatter, max_help_position=28)
        super().__init__(allow_abbrev=False, formatter_class=layout, **settings)
        self.overrides = overrides
        if overrides:
            self.add_argument(
                "recipe", metavar="RECIPE", help="a name ('unmask recipes') or a .yaml file"
            )

    def error(self, message: str) -> NoReturn:
        raise UnmaskError(f"{message}; see '{self.prog} --help'")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if not self.overrides:
            parsed, extras = super().parse_known_args(args, namespace)
            self._refuse_misspelled(extras)
            return parsed, extras
        own, overrides = self._split(args or ())
        parsed, extras = super().parse_known_args(own, namespace)
        parsed.overrides = overrides
        return parsed, extras

    def _refuse_misspelled(self, extras: Sequence[str]) -> None:
        """An unknown option with a near name is an error that names it; argparse refuses all others."""
        for extra in extras:
            near = get_close_matches(extra.partition("=")[0], self._option_string_actions, 1)
            if extra.startswith("--") and near:
                self.error(f"unrecognized arguments: {' '.join(extras)}; did you mean {near[0]!r}?")

    def _split(self, args: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """Our own arguments, and the pairs of `--a.b value` and `--a.b=value`."""
        own: list[str] = []
        overrides: list[tuple[str, str]] = []
        tokens = iter(args)
        for token in tokens:
            name, equals, value = token.partition("=")
            if not name.startswith("--") or name in self._option_string_actions:
                own.append(token)
            else:
                overrides.append((name[2:], value if equals else self._value(name, tokens)))
        return own, overrides

    def _value(self, name: str, tokens: Iterator[str]) -> str:
        value = next(tokens, "--")
        if value.startswith("--"):
            self.error(f"{name} needs a value")
        return value


def add_sampling(parser: Parser) -> None:
    """The options of everything that writes; one that is not given keeps the API's default."""
    group = parser.add_argument_group("sampling", argument_default=argparse.SUPPRESS)
    add_options(group, options_of(Sampling, "cli"))
    add_arithmetic(group)
    for name, options in processor_options("cli").items():
        summary = LOGITS_PROCESSORS.summaries()[name]
        add_options(parser.add_argument_group(name, summary), options)
    parser.add_argument(
        "--watch",
        action=argparse.BooleanOptionalAction,
        help="show the text forming, slowly enough to follow; by default a single text on a screen, at full speed",
    )
    parser.add_argument(
        "--time", action="store_true", help="tell how long the first text and all of it took"
    )


def add_options(group: argparse._ArgumentGroup, options: Iterable[Option]) -> None:
    """A flag for each declared option; one that is not given is absent from the arguments."""
    for one in options:
        name = one.name if "." in one.name else one.name.replace("_", "-")
        settings: dict[str, Any] = {"action": "append"} if one.many else {"type": _TYPES[one.kind]}
        group.add_argument(
            _FLAGS.get(name, f"--{name}"),
            dest=one.name,
            default=argparse.SUPPRESS,
            metavar=one.metavar or _METAVARS[one.kind],
            help=help_of(one).replace("%", "%%"),
            **settings,
        )


def help_of(one: Option) -> str:
    """The help of an option, with its default where it has one to show."""
    if one.required or one.default in (None, (), ""):
        return one.help
    default = f"{one.default:g}" if isinstance(one.default, float) else one.default
    return f"{one.help} ({default})"


_FLAGS = {"include": "--must-include"}
_TYPES: dict[type, Callable[[str], Any]] = {bool: str, int: int, float: float, str: str}
_METAVARS = {bool: "true|false", int: "N", float: "X", str: "TEXT"}


def refuse_others(args: argparse.Namespace, what: str, *own: str) -> None:
    """An option of another measurement would change nothing: better said than ignored."""
    always = {"model", "json", "suite", "execute", "device", "precision", "compile"}
    for name, value in vars(args).items():
        if name not in {*always, *own} and value is not None:
            raise UnmaskError(f"--{name.replace('_', '-')} does not go with {what}")


def check_place(file: Path) -> None:
    """Before hours of work: a place that its outcome can be written to."""
    if not file.resolve().parent.is_dir():
        raise UnmaskError(f"there is no folder for {file}: make it first")
    if file.is_dir():
        raise UnmaskError(f"{file} is a folder: name a file in it")


def list_of(kind: type[T]) -> Callable[[str], list[T]]:
    """Numbers with commas between them."""

    def parse(text: str) -> list[T]:
        try:
            return [kind(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no list of numbers such as 8,16,32"
            ) from None

    return parse


def add_arithmetic(group: argparse._ArgumentGroup) -> None:
    """How the network computes; what `load` takes beside a device."""
    add = group.add_argument
    add(
        "--precision",
        metavar="TYPE",
        help="of the arithmetic: fp32 (default), bf16, or auto, the fastest that is native",
    )
    add("--compile", action="store_true", help="half a minute of waiting, then faster on a GPU")


def add_model(parser: Parser, optional: bool = False) -> None:
    """The model that a command reads, and how it answers."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?" if optional else None,
        help="a shipped model ('unmask models'), a run folder or an exported one",
    )
    parser.add_argument(
        "--device", default=argparse.SUPPRESS, help="cpu, cuda, mps; by default the best there is"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the options that the user gave."""
    return {name: getattr(args, name) for name in names if hasattr(args, name)}
