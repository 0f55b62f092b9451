"""unmask harness: runs lm-evaluation-harness with the model class `unmask` registered."""

import sys
from argparse import Namespace
from functools import partial
from importlib import import_module

from unmask.cli.parser import Commands, Parser

GROUP = "measure"

_ARGUMENTS = """\
All arguments are those of lm_eval. The default of --model is unmask.

examples:
  unmask harness --model_args path=runs/demo,draws=32 --tasks lambada_openai --batch_size 32
  unmask harness --model_args path=runs/demo --tasks mine --include_path tasks
  unmask harness ls tasks
"""
_OTHER_MODEL = ("--model", "-M", "--config", "-C")


def add(commands: Commands) -> None:
    summary = "run the tasks of lm-evaluation-harness (extra harness)"
    parser = commands.add_parser(
        "harness",
        help=summary,
        description=summary,
        epilog=_ARGUMENTS,
        prefix_chars="\0",  # all options go to lm_eval
        add_help=False,
    )
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="argument of lm_eval")
    parser.set_defaults(execute=partial(execute, parser))


def execute(parser: Parser, args: Namespace) -> None:
    if args.arguments in ([], ["-h"], ["--help"]):
        parser.print_help()
        parser.exit()
    from unmask.imports import extra

    command = extra("lm_eval.__main__", "unmask harness", "harness")
    import_module("unmask.extensions.lm_eval.adapter")  # registers the model
    before, sys.argv = sys.argv, ["lm_eval", *with_model(args.arguments)]
    try:
        command.cli_evaluate()
    finally:
        sys.argv = before


def with_model(arguments: list[str]) -> list[str]:
    """The arguments of lm_eval, with `--model unmask` added if they run tasks and name no model."""
    runs = arguments[0] == "run" or arguments[0].startswith("-")
    named = any(argument.partition("=")[0] in _OTHER_MODEL for argument in arguments)
    return [*arguments, "--model", "unmask"] if runs and not named else arguments
