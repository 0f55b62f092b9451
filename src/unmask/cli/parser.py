"""The argument parser: one-line errors, dotted overrides, options from dataclasses, examples."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

from unmask.errors import UnmaskError, unknown
from unmask.generation.logits_processor import LOGITS_PROCESSORS, processor_options
from unmask.generation.sampling_params import SamplingParams, attachment_options
from unmask.options import Option, options_of

T = TypeVar("T", int, float)
Commands: TypeAlias = "GroupedCommands"

OVERRIDES = """\
Any field of the configuration can be set, as --section.field value:
  --training.steps 1000 --data.length 64 --training.validate-every 50
In an option, - and _ are the same: --data.label-field sets data.label_field.
A component is chosen by its name, which resets its fields to their defaults:
  --method sedd --schedule cosine
'unmask config RECIPE' prints every field with its value.
"""


class GroupedCommands(argparse._SubParsersAction):
    """Sub-commands with the group in which the help lists them, GROUP of the module that adds them."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = "more"  # of the commands that are added next
        self.groups: dict[str, str] = {}

    def add_parser(self, name: str, **settings: Any) -> "Parser":
        self.groups[name] = self.group
        return cast("Parser", super().add_parser(name, **settings))


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Help layout that keeps line breaks; its first column fits the longest sub-command."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, GroupedCommands):
            return super()._format_action(action)
        parts: dict[str, list[str]] = {}
        self._indent()
        for one in action._get_subactions():
            parts.setdefault(action.groups[one.dest], []).append(super()._format_action(one))
        self._dedent()
        indent = " " * self._current_indent
        return "".join(f"{indent}{name}:\n{''.join(lines)}" for name, lines in parts.items())

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            longest = max(map(len, action.choices), default=0) + 2 * self._indent_increment
            self._action_max_length = max(self._action_max_length, longest)


class _HelpAll(argparse.Action):
    """Prints the help with all options."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        print(parser.format_all(), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser that raises an `UnmaskError` for a wrong argument.

    With `overrides`, unknown options `--a.b value` are collected as overrides of the configuration.
    `default_command` is the sub-command if the first argument names none. With `common`, names of
    options, the help shows these options, and --help-all shows all.
    """

    def __init__(
        self, *, overrides: bool = False, default_command: str = "", **settings: Any
    ) -> None:
        if overrides:
            settings.update(usage="%(prog)s RECIPE [options] [--section.field value ...]")
            settings.update(epilog=OVERRIDES)
        layout = partial(_Layout, max_help_position=28)
        super().__init__(allow_abbrev=False, formatter_class=layout, **settings)
        self.common: tuple[str, ...] = ()
        self.overrides, self.default_command = overrides, default_command
        if overrides:
            self.add_argument(
                "recipe",
                metavar="RECIPE",
                help="name of a recipe ('unmask list recipes') or .yaml file",
            )

    def show_first(self, *common: str) -> None:
        """Lets the help show these options, by their names, and adds --help-all for all."""
        self.common = common
        self.add_argument("--help-all", action=_HelpAll, help="show all options, and exit")

    def format_help(self) -> str:
        """The help, with the common options only if there are such."""
        shown = {*self.common, "help", "help_all"}
        hidden = [a for a in self._actions if a.option_strings and a.dest not in shown]
        if not self.common or not hidden:
            return self.format_all()
        groups = [
            g for g in self._action_groups if g._group_actions and {*g._group_actions} <= {*hidden}
        ]
        helps, about, end = [a.help for a in hidden], [g.description for g in groups], self.epilog
        try:
            for action in hidden:
                action.help = argparse.SUPPRESS
            for group in groups:
                group.description = None
            self.epilog = f"{len(hidden)} more options: {self.prog} --help-all\n\n{end or ''}"
            return self.format_all()
        finally:
            self.epilog = end
            for action, text in zip(hidden, helps, strict=True):
                action.help = text
            for group, text in zip(groups, about, strict=True):
                group.description = text

    def format_all(self) -> str:
        """The help with all options."""
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise UnmaskError(f"{message}; see '{self.prog} --help'")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        args = self._respelled(args or ())
        if self.default_command:
            args = self._with_default(args)
        if not self.overrides:
            parsed, extras = super().parse_known_args(args, namespace)
            extras = self._optional_positional(parsed, extras)
            # here the error refers to the help of the command; later it would refer to that of
            # `unmask`
            if extras and self._subparsers is None:
                self._unrecognized(extras)
            return parsed, extras
        own, overrides = self._split(args)
        parsed, extras = super().parse_known_args(own, namespace)
        parsed.overrides = overrides
        if extras:
            self._unrecognized(extras)
        return parsed, extras

    def _respelled(self, args: Sequence[str]) -> list[str]:
        """The arguments, with this parser's options as it spells them: --top_p is --top-p."""
        own = {name.replace("_", "-"): name for name in self._option_string_actions}
        words = [word.partition("=") for word in args]
        return [
            (own.get(name.replace("_", "-"), name) if name.startswith("--") else name)
            + equals
            + value
            for name, equals, value in words
        ]

    def _optional_positional(self, parsed: argparse.Namespace, extras: list[str]) -> list[str]:
        """The unknown arguments, less one that is the value of an optional positional.

        Python before 3.12.7 gives `export MODEL --raw FOLDER` no FOLDER: it leaves out the optional
        one as soon as an option follows MODEL.
        """
        for action in self._get_positional_actions():
            absent = getattr(parsed, action.dest, None) is action.default
            if action.nargs == "?" and absent and extras and not extras[0].startswith("-"):
                setattr(parsed, action.dest, self._get_values(action, extras[:1]))
                return extras[1:]
        return extras

    def _unrecognized(self, extras: Sequence[str]) -> NoReturn:
        """Raises an error for unknown arguments, with the nearest option."""
        flag = next((extra.partition("=")[0] for extra in extras if extra.startswith("--")), "")
        near = get_close_matches(flag, self._option_string_actions, 1, 0.75)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        if self.overrides and not flag:
            hint = f"; to train on a text, give --data.train {extras[0]}"
        self.error(f"unrecognized arguments: {' '.join(extras)}{hint}")

    def _with_default(self, args: Sequence[str]) -> Sequence[str]:
        """The arguments, with the default sub-command in front if they name none.

        If the first two arguments are names, the first is an unknown suite, which is an error.
        """
        assert self._subparsers is not None
        names = list(self._subparsers._group_actions[0].choices or ())
        if args[:1] and args[0] in (*names, "-h", "--help"):
            return args
        if len(args) > 1 and not any(word.startswith("-") for word in args[:2]):
            raise unknown("suite", args[0], names)
        return [self.default_command, *args]

    def _split(self, args: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """The parser's own arguments, and the overrides `--a.b value` and
        `--a.b=value` as pairs.
        """
        own: list[str] = []
        overrides: list[tuple[str, str]] = []
        tokens = iter(args)
        for token in tokens:
            name, equals, value = token.partition("=")
            if not name.startswith("--") or name in self._option_string_actions:
                own.append(token)
            else:
                setting = name[2:].replace("-", "_")
                overrides.append((setting, value if equals else self._value(name, tokens)))
        return own, overrides

    def _value(self, name: str, tokens: Iterator[str]) -> str:
        value = next(tokens, "--")
        if value.startswith("--"):
            self.error(f"{name} needs a value")
        return value


def add_examples(parser: Parser, *commands: str) -> None:
    """Adds example commands to the end of a parser's help."""
    lines = [f"  {command}\n" for command in commands]
    parser.epilog = "\n".join(filter(None, (parser.epilog, "".join(["examples:\n", *lines]))))


def add_options(
    parser: argparse.ArgumentParser, options: Iterable[Option], group: str = "options"
) -> None:
    """Adds an argument for each option, in the option's group or else in `group`.

    An option that is not given is absent from the namespace: its dataclass sets the default.
    """
    for one in options:
        name = one.name.replace("_", "-")
        if one.name in {*(action.dest for action in parser._actions), *parser._defaults}:
            raise UnmaskError(
                f"{parser.prog} has an option {one.name} already: rename the new option"
            )
        group_of(parser, one.group or group).add_argument(
            _FLAGS.get(name, f"--{name}"),
            dest=one.name,
            default=argparse.SUPPRESS,
            help=help_of(one),
            **_argument(one),
        )


_FLAGS = {"include": "--must-include"}


def group_of(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """The argument group of a title; it is created if there is none."""
    found = [group for group in parser._action_groups if group.title == title]
    return found[0] if found else parser.add_argument_group(title)


def help_of(one: Option) -> str:
    """The help of an option, followed by its default in brackets if it has one to show."""
    if one.required or isinstance(one.default, bool) or one.default in (None, "", (), []):
        return one.help.replace("%", "%%")
    values = one.default if one.many else [one.default]
    shown = ",".join(f"{each:g}" if isinstance(each, float) else str(each) for each in values)
    return f"{one.help} ({shown})".replace("%", "%%")


def _argument(one: Option) -> dict[str, Any]:
    """The arguments of `add_argument` that follow from the type of an option."""
    kind: Any = one.kind
    if kind is bool:
        switch = one.default is False
        return {"action": "store_true" if switch else argparse.BooleanOptionalAction}
    names = {int: "N", float: "X", Path: "FILE"}
    name = one.metavar or names.get(kind, one.name.rpartition("_")[2].upper())
    if one.many and kind in (int, float):
        return {"type": _checked(one, list_of(kind)), "metavar": one.metavar or f"{name},{name}"}
    several = {"action": "append"} if one.repeat else {"nargs": "+"} if one.many else {}
    if one.choices:
        by_text = {str(choice): choice for choice in one.choices}
        kind, name = (lambda text: by_text.get(text, text)), one.metavar or "|".join(by_text)
    return {"type": _checked(one, kind), "metavar": name, **several}


def _checked(one: Option, parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """`parse` with a check of the option's range."""

    def checked(text: str) -> Any:
        value = parse(text)
        one.check(value)
        return value

    checked.__name__ = getattr(parse, "__name__", "")  # for argparse's error: invalid int value
    return checked


def add_sampling(parser: Parser, shown: bool = True) -> None:
    """Adds the sampling options and those of logits processors,
    with the defaults of the Python API. With `shown`, --watch and --time too.
    """
    group = parser.add_argument_group("sampling", argument_default=argparse.SUPPRESS)
    add_options(parser, [*options_of(SamplingParams, "cli"), *attachment_options()], "sampling")
    add_arithmetic(group)
    for name, options in processor_options("cli").items():
        parser.add_argument_group(name, LOGITS_PROCESSORS.summaries()[name])
        add_options(parser, options, name)
    if not shown:
        return
    parser.add_argument(
        "--watch",
        action=argparse.BooleanOptionalAction,
        help="show each step, with pauses; by default a terminal shows the steps of a single text, without pauses",
    )
    parser.add_argument(
        "--time",
        action="store_true",
        help="print the seconds until the first text and for all texts",
    )


def list_of(kind: type[T]) -> Callable[[str], list[T]]:
    """A parser of numbers separated by commas."""

    def parse(text: str) -> list[T]:
        try:
            return [kind(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no list of numbers: give one such as 8,16,32"
            ) from None

    return parse


def add_arithmetic(group: argparse._ArgumentGroup) -> None:
    """Adds the options of `load` for precision and compilation."""
    add = group.add_argument
    add(
        "--precision",
        metavar="TYPE",
        help="precision of the network: fp32, bf16, or auto for the fastest native one (fp32)",
    )
    add(
        "--compile",
        action="store_true",
        help="compile the network: it takes half a minute, and the network is then faster on a GPU",
    )


def add_model(parser: Parser) -> None:
    """Adds the arguments MODEL, --device and --json."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="shipped model ('unmask models'), run folder or exported model",
    )
    parser.add_argument(
        "--device",
        default=argparse.SUPPRESS,
        help="cpu, cuda or mps; by default the fastest available",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options among `names` that the user gave, by name."""
    return {name: getattr(args, name) for name in names if hasattr(args, name)}
