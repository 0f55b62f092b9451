"""unmask train: from a recipe to a run folder."""

import os
import shlex
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands


def add(commands: Commands) -> None:
    summary = "train a model; a run that was interrupted goes on where it stopped"
    parser = commands.add_parser("train", overrides=True, help=summary, description=summary)
    parser.add_argument("--run", type=Path, metavar="DIR", help="run folder (runs/RECIPE)")
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask import api
    from unmask.config import load_recipe, resolve

    config = resolve(load_recipe(args.recipe), args.overrides)
    run = args.run or Path("runs") / Path(args.recipe).stem
    try:
        api.train(config, run, say=print)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(*stop.args, f"resume with: {_command(args, run)}") from None
    if os.environ.get("RANK", "0") == "0":  # torchrun starts several
        print(f"next: unmask generate {run}{' --prompt TEXT' if config.data.paired else ''}")


def _command(args: Namespace, run: Path) -> str:
    overrides = [part for name, value in args.overrides for part in (f"--{name}", value)]
    return shlex.join(["unmask", "train", args.recipe, "--run", str(run), *overrides])
