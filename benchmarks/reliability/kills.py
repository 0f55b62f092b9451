"""Kills a training run many times, also inside saves, and compares its result with an undisturbed run.

    python benchmarks/reliability kills --kills 30

Each kill is a SIGKILL at a random moment. Every other kill waits until a checkpoint is being written. Weights,
optimizer, averages, the best weights, the exported model, the loss log and the samples must have the same SHA-256 as
those of the undisturbed run.
"""

import hashlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch._dynamo  # optimizers import it: import it once, before the forks

import unmask
from benchmarks.room import script_parser
from unmask.config.run_config import RunConfig, load_recipe, resolve
from unmask.files.jsonl import JsonLines

SETTINGS = {
    "backbone.width": 64, "backbone.depth": 1, "training.batch": 16, "training.warmup": 10,
    "training.log_every": 1, "training.save_every": 4, "training.validate_every": 10,
    "training.validation_rows": 32, "training.sample_every": 30, "training.device": "cpu",
    "data.length": 64, "data.tokenizer.kind": "bytes",
}  # fmt: skip
COMPARED = ("*.safetensors", "log.jsonl", "samples.jsonl")


def configuration(steps: int) -> RunConfig:
    """A small run with all features of a large one."""
    settings = {**SETTINGS, "training.steps": steps}
    return resolve(load_recipe("demo"), [(name, str(value)) for name, value in settings.items()])


def start(run: Path, config: RunConfig) -> int:
    """Starts a process that trains in `run`. Returns its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            unmask.train(config, run, say=lambda line: None)
            code = 0
        finally:
            os._exit(code)
    return child


def step_of(run: Path) -> int:
    return max((record["step"] for record in JsonLines(run / "log.jsonl").read()), default=0)


def saving(run: Path) -> bool:
    """True if a checkpoint is being written, or was when the process died."""
    return any((run / "checkpoints").glob(".*.building"))


def kill(run: Path, config: RunConfig, step: int, inside: bool, dice: random.Random) -> bool | None:
    """Trains until the log reaches a step, then kills. Returns True inside a save, None if the run had ended."""
    child = start(run, config)
    while step_of(run) < step and not ended(child):
        time.sleep(0.002)
    if inside:
        while not saving(run) and not ended(child):
            pass  # a save takes milliseconds
        time.sleep(dice.uniform(0, 0.01))
    else:
        time.sleep(dice.uniform(0, 0.1))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return saving(run) if status == signal.SIGKILL else None


def ended(child: int) -> bool:
    """True if a child process has ended. Its status can still be read afterwards."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def hashes(run: Path) -> dict[str, str]:
    """SHA-256 of every file that must be the same."""
    found = sorted(path for pattern in COMPARED for path in run.rglob(pattern))
    return {
        path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in found
    }


def finish(run: Path, config: RunConfig) -> None:
    status = os.waitpid(start(run, config), 0)[1]
    assert status == 0, f"training in {run} ended with {status}"


def strike(run: Path, config: RunConfig, kills: int, dice: random.Random) -> Iterator[bool]:
    """Kills the run `kills` times, each time later. Yields True for each kill inside a save."""
    last = config.training.steps - 2 * config.training.save_every
    for number, step in enumerate(sorted(dice.choices(range(1, last), k=kills))):
        inside = kill(run, config, step, number % 2 == 1, dice)
        assert inside is not None, f"the run ended before it could be killed at step {step}"
        where = "inside a save" if inside else "between saves"
        print(f"kill {number + 1}: log at step {step_of(run)}, {where}", flush=True)
        yield inside


def main(argv: list[str] | None = None) -> int:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=30)
    add("--steps", type=int, default=120)
    add("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # the number of threads changes bits
    dice, config = random.Random(args.seed), configuration(args.steps)
    print(f"seed {args.seed}, {args.steps} steps, a checkpoint every {config.training.save_every}")
    with TemporaryDirectory() as folder:
        straight, killed = Path(folder) / "straight", Path(folder) / "killed"
        finish(straight, config)
        inside = sum(strike(killed, config, args.kills, dice))
        finish(killed, config)
        ours, theirs = hashes(killed), hashes(straight)
    differing = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
    for name, digest in sorted(theirs.items()):
        print(f"{'DIFFERS' if name in differing else 'equal':<8} {digest[:16]}  {name}")
    print(
        f"{args.kills} kills, {inside} inside a save: {len(differing)} of {len(theirs)} files differ"
    )
    return 1 if differing else 0
