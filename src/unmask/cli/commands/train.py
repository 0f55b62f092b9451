"""unmask train: trains a model into a run folder; unmask config: prints a configuration."""

import os
import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.cli.checks import check_settings
from unmask.cli.output.tables import size_text
from unmask.cli.parser import Commands, add_examples
from unmask.errors import UnmaskError
from unmask.recipes import locate, require_text

if TYPE_CHECKING:
    from unmask.model import Model

GROUP = "train"
_SAMPLE = 64  # tokens of the text that a finished run shows


def add(commands: Commands) -> None:
    _add_train(commands)
    _add_config(commands)


def _add_train(commands: Commands) -> None:
    summary = "train a model, or resume an interrupted run"
    parser = commands.add_parser("train", overrides=True, help=summary, description=summary)
    folder = parser.add_mutually_exclusive_group()
    folder.add_argument("--run", type=Path, metavar="DIR", help="run folder (runs/RECIPE)")
    folder.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="run folder to resume; an error if it has no checkpoint",
    )
    parser.add_argument(
        "--auto-batch", action="store_true", help="find the largest micro-batch that fits in memory"
    )
    add_examples(
        parser,
        "unmask train demo",
        "unmask train auto --data.train mytext.txt --run runs/new",
        "unmask train finetune --data.train mytext.txt --run runs/mine",
        "unmask train demo --run runs/cosine --schedule cosine --training.steps 300",
    )
    parser.set_defaults(execute=train)


def _add_config(commands: Commands) -> None:
    summary = "print the full configuration of a recipe with overrides"
    parser = commands.add_parser("config", overrides=True, help=summary, description=summary)
    add_examples(
        parser,
        "unmask config demo",
        "unmask config demo --method sedd --data.length 64 > mine.yaml",
    )
    parser.set_defaults(execute=config)


def train(args: Namespace) -> None:
    run = args.run or args.resume or Path("runs") / Path(args.recipe).stem
    # before the first line, and before the import of torch, which takes seconds
    locate(args.recipe)
    if not (run / "config.yaml").is_file():  # a run that has begun may have lost its first model
        require_text(args.recipe, dict(args.overrides))
        check_settings(args.overrides)
    if _is_main():
        _say(f"recipe {args.recipe}, run folder {run}")
    from unmask.runs.auto_recipe import fitted
    from unmask.runs.inspect import folder_size
    from unmask.runs.train import train as start
    from unmask.training.checkpoints.checkpoint import begun

    config = fitted(args.recipe, args.overrides, run, _say if _is_main() else None)
    if args.resume and not begun(run):
        raise UnmaskError(f"{run} has no checkpoint to resume: start a run with --run {run}")
    try:
        model = start(config, run, say=_say, auto_batch=args.auto_batch)
    except KeyboardInterrupt as stop:
        hint = [f"resume with: {_command(args, run)}"] if _is_main() else []
        raise KeyboardInterrupt(*stop.args, *hint) from None
    if _is_main():
        _show_text(model)
        checkpoints = size_text(folder_size(run / "checkpoints"))
        print(
            f"{run} takes {size_text(folder_size(run))}; {checkpoints} of it are checkpoints; "
            f"'unmask export {run} FOLDER' writes the model alone"
        )
        print(f"next: unmask evaluate {run}    (measures all of the held-out text)")
        print(f"      unmask generate {run}{' --prompt TEXT' if config.data.paired else ''}")


def _show_text(model: "Model") -> None:
    """Prints a text of the trained model, unselected."""
    if model.method.capabilities.generate and not model.conditional:
        text = str(model.generate(length=min(model.length, _SAMPLE), seed=0)[0])
        _say(f"it writes, with seed 0: {' '.join(text.split())}")


def config(args: Namespace) -> None:
    from unmask.config.run_config import dump_yaml
    from unmask.runs.auto_recipe import fitted

    print(dump_yaml(fitted(args.recipe, args.overrides, say=None)), end="")


def _say(line: str) -> None:
    """Prints a line at once, also into a pipe."""
    print(line, flush=True)


def _is_main() -> bool:
    """True on rank 0, the only rank that prints."""
    return os.environ.get("RANK", "0") == "0"


def _command(args: Namespace, run: Path) -> str:
    """The command that resumes the run, with its torchrun launch but without rendezvous options."""
    overrides = [
        part for name, value in args.overrides for part in (f"--{name.replace('_', '-')}", value)
    ]
    own = ["--auto-batch"] if args.auto_batch else []
    launcher = []
    if "TORCHELASTIC_RUN_ID" in os.environ:
        machines = os.environ.get("GROUP_WORLD_SIZE", "1")
        launcher = ["torchrun", "--nproc-per-node", os.environ.get("LOCAL_WORLD_SIZE", "1")]
        launcher += [*(["--nnodes", machines] if machines != "1" else []), "-m", "--"]
    return shlex.join(
        [*launcher, "unmask", "train", args.recipe, "--run", str(run), *own, *overrides]
    )
