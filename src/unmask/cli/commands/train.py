"""unmask train: from a recipe to a run folder; unmask config prints the configuration."""

import os
import shlex
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands
from unmask.errors import UnmaskError


def add(commands: Commands) -> None:
    _add_train(commands)
    _add_config(commands)


def _add_train(commands: Commands) -> None:
    summary = "train a model; a run that was interrupted goes on where it stopped"
    parser = commands.add_parser("train", overrides=True, help=summary, description=summary)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--run", type=Path, metavar="DIR", help="run folder (runs/RECIPE)")
    place.add_argument(
        "--resume", type=Path, metavar="DIR", help="run folder that must have a checkpoint already"
    )
    parser.add_argument(
        "--auto-batch", action="store_true", help="find the largest micro-batch that fits in memory"
    )
    parser.set_defaults(execute=train)


def _add_config(commands: Commands) -> None:
    summary = "print the whole configuration that a recipe and overrides make"
    parser = commands.add_parser("config", overrides=True, help=summary, description=summary)
    parser.set_defaults(execute=config)


def train(args: Namespace) -> None:
    from unmask.config.run_config import load_recipe, resolve
    from unmask.runs.train import train as start
    from unmask.training.checkpoints.checkpoint import begun

    config = resolve(load_recipe(args.recipe), args.overrides)
    run = args.run or args.resume or Path("runs") / Path(args.recipe).stem
    if args.resume and not begun(run):
        raise UnmaskError(f"nothing to resume in {run}: --run {run} starts a run there")
    try:
        start(config, run, say=print, auto_batch=args.auto_batch)
    except KeyboardInterrupt as stop:
        how = [f"resume with: {_command(args, run)}"] if _first() else []
        raise KeyboardInterrupt(*stop.args, *how) from None
    if _first():
        print(f"next: unmask generate {run}{' --prompt TEXT' if config.data.paired else ''}")


def config(args: Namespace) -> None:
    from unmask.config.run_config import dump_yaml, load_recipe, resolve

    print(dump_yaml(resolve(load_recipe(args.recipe), args.overrides)), end="")


def _first() -> bool:
    """True in the one process that prints, of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def _command(args: Namespace, run: Path) -> str:
    """What was typed, torchrun included; how machines find each other is not ours to know."""
    overrides = [part for name, value in args.overrides for part in (f"--{name}", value)]
    own = ["--auto-batch"] if args.auto_batch else []
    several = []
    if "TORCHELASTIC_RUN_ID" in os.environ:
        machines = os.environ.get("GROUP_WORLD_SIZE", "1")
        several = ["torchrun", "--nproc-per-node", os.environ.get("LOCAL_WORLD_SIZE", "1")]
        several += [*(["--nnodes", machines] if machines != "1" else []), "-m", "--"]
    return shlex.join(
        [*several, "unmask", "train", args.recipe, "--run", str(run), *own, *overrides]
    )
