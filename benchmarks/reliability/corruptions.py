"""Damages run folders: `unmask check` must find each damage, and training must resume or refuse with a reason.

    python benchmarks/reliability corruptions --count 200

A file of a finished run is cut, deleted, emptied, made longer, or swapped with another file, or one of its bits is
flipped. Then two commands run:

- `unmask check` must name the damaged file.
- `unmask train` must train a few more steps or refuse with a reason. If it trains, weights, optimizer and logs must
  equal those of an undamaged run. Only older checkpoints may still be damaged afterwards.

Neither command may end with a traceback. The file loss.png, a picture of the log, is never damaged.
"""

import contextlib
import io
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from benchmarks.reliability.kills import SETTINGS, hashes
from benchmarks.room import script_parser
from unmask.cli import main as unmask

STEPS = 24
NEWEST = f"step-{STEPS + 4:08d}"
OPTIONS = {
    **SETTINGS, "training.decay": "constant", "training.sample_every": 12, "training.keep": 3,
    "training.validate_every": 6,
}  # fmt: skip


def truncate(content: bytes, dice: random.Random) -> bytes:
    return content[: dice.randrange(len(content))]


def flip(content: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << dice.randrange(8)]) + content[place + 1 :]


def append(content: bytes, dice: random.Random) -> bytes:
    return content + dice.randbytes(dice.randrange(1, 100))


def empty(content: bytes, dice: random.Random) -> bytes:
    return b""


CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "truncate": truncate,
    "flip a bit": flip,
    "append": append,
    "empty": empty,
}
KINDS = (*CHANGES, "delete", "swap", "all")  # "all" damages every checkpoint


class Answer(NamedTuple):
    """Exit code and output of a command."""

    code: int
    text: str


def command(*arguments: str) -> Answer:
    """Runs `unmask` in this process, so a traceback ends the script."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = unmask(arguments)
    return Answer(code, said.getvalue())


def train(run: Path, steps: int) -> Answer:
    settings = {**OPTIONS, "training.steps": steps}
    overrides = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    return command("train", "demo", "--run", str(run), *overrides)


def spoil(run: Path, kind: str, dice: random.Random) -> str:
    """Damages a file, or all checkpoints, of a run. Returns the names of the damaged files."""
    if kind == "all":
        folders = sorted((run / "checkpoints").glob("step-*"))
        return " and ".join(spoil(each, dice.choice(KINDS[:-2]), dice) for each in folders)
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != "loss.png")
    victim = dice.choice(files)
    content, name = victim.read_bytes(), victim.relative_to(run).as_posix()
    if kind == "delete":
        victim.unlink()
    elif kind == "swap":
        other = dice.choice([path for path in files if path.read_bytes() != content])
        victim.write_bytes(other.read_bytes())
        other.write_bytes(content)
        name += f" and {other.relative_to(run).as_posix()}"
    else:
        victim.write_bytes(CHANGES[kind](content, dice))
    return name


def outcome(run: Path, whole: dict[str, str]) -> str:
    """Checks and trains a damaged run. Returns the outcome: one in capitals is a failure."""
    seen = command("check", str(run))
    if seen.code != 2 or "damaged" not in seen.text:
        return "NOT SEEN"
    went_on = train(run, STEPS + 4)
    if went_on.code == 2 and "no intact checkpoint" in went_on.text:
        return "refused with the reason"
    if went_on.code:
        return f"REFUSED: {went_on.text.splitlines()[-1]}"
    lost_best = "best is damaged" in went_on.text
    found = hashes(run)
    if any(found.get(name) != whole[name] for name in compared(whole, lost_best)):
        return "ANOTHER RESULT"
    left = [line for line in command("check", str(run)).text.splitlines() if "damaged  " in line]
    if any(NEWEST in line or "step-" not in line for line in left):
        return "STILL DAMAGED"
    return "same bits, best weights made anew" if lost_best else "same bits"


def compared(whole: dict[str, str], lost_best: bool) -> list[str]:
    """Files that must be equal: all but older checkpoints, and without the best weights if those were lost."""
    best = [name for name in whole if name.startswith(("checkpoints/best/", "model/"))]
    older = [name for name in whole if "step-" in name and NEWEST not in name]
    return [name for name in whole if name not in older and not (lost_best and name in best)]


def main(argv: list[str] | None = None) -> int:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--count", type=int, default=200)
    add("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    dice, outcomes = random.Random(args.seed), Counter[tuple[str, str]]()
    print(f"seed {args.seed}")
    with TemporaryDirectory() as folder:
        straight, run, longer = (Path(folder) / name for name in ("straight", "run", "longer"))
        assert train(straight, STEPS).code == 0
        shutil.copytree(straight, longer)
        assert train(longer, STEPS + 4).code == 0
        whole = hashes(longer)
        for number in range(args.count):
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(straight, run)
            kind = KINDS[number % len(KINDS)]
            what = spoil(run, kind, dice)
            found = outcome(run, whole)
            outcomes[kind, found] += 1
            if found[:2].isupper():
                print(f"{number}: {kind} {what}: {found}", flush=True)
    for (kind, found), count in sorted(outcomes.items()):
        print(f"{kind:<12} {found:<36} {count:>4}")
    bad = sum(count for (_, found), count in outcomes.items() if found[:2].isupper())
    print(f"{args.count} corruptions, {bad} not handled")
    return 1 if bad else 0
