"""unmask config: the whole configuration of a recipe, with overrides, as YAML."""

from argparse import Namespace

from unmask.cli.parser import Commands


def add(commands: Commands) -> None:
    summary = "print the whole configuration that a recipe and overrides make"
    parser = commands.add_parser("config", overrides=True, help=summary, description=summary)
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask.config.run import dump_yaml, load_recipe, resolve

    print(dump_yaml(resolve(load_recipe(args.recipe), args.overrides)), end="")
