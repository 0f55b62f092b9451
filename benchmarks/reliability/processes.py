"""Compares the same run on 1, 2 and 4 processes, with and without kills, on a CPU over gloo.

    python benchmarks/reliability processes --out FOLDER

The run is a small version of the recipe `demo` in float32 with dropout and global batches of 16 rows. Each process
stores a hash of every row that it gets. The hashes of a step's global batch must be the same for any number of
processes. The losses may differ only by the order in which float32 numbers are added. Then two processes run again:
SIGKILL ends one of them at random moments, and torchrun restarts both. Tensors, counters and log must be equal to the bit.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.room import script, script_parser
from unmask.data.loader import Loader
from unmask.files.storage import verify
from unmask.training.checkpoints.checkpoint import newest

SMALL = {
    "backbone.width": "64", "backbone.depth": "2", "backbone.heads": "2", "backbone.dropout": "0.1",
    "training.batch": "16", "training.micro_batch": "2", "training.warmup": "20",
    "training.log_every": "1", "training.save_every": "20", "training.validate_every": "50",
    "training.validation_rows": "64", "training.sample_every": "0", "training.device": "cpu",
}  # fmt: skip


def command(run: Path, steps: int, processes: int, strategy: str, restarts: int = 0) -> list[str]:
    """The command that starts this file as workers."""
    settings = {**SMALL, "training.steps": str(steps), "distributed.strategy": strategy}
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    train = [*script(__file__), "--", "train", "demo", "--run", str(run), *options]
    if strategy == "plain":
        return [sys.executable, *train]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    shape = ["--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
    return [*torchrun, *shape, "--", *train]


def worker(arguments: list[str]) -> int:
    """Runs `unmask` with a loader that stores hashes of its rows."""
    from unmask.cli import main

    run = Path(arguments[arguments.index("--run") + 1])
    rank = os.environ.get("RANK", "0")
    run.mkdir(parents=True, exist_ok=True)
    (run / f"process-{rank}").write_text(str(os.getpid()))
    batch = Loader.batch

    def hashed(self, step, part):
        x, valid = batch(self, step, part)
        with (run / f"rows-{rank}.jsonl").open("a") as file:
            for row, ids, real in zip(part, x.numpy(), valid.numpy(), strict=True):
                digest = hashlib.sha256(ids.tobytes() + real.tobytes()).hexdigest()
                file.write(json.dumps([step, row, digest]) + "\n")
        return x, valid

    Loader.batch = hashed
    return main(arguments)


def global_batches(run: Path) -> str:
    """One hash over all rows of all steps, ordered by step and row."""
    lines = [
        json.loads(line)
        for file in run.glob("rows-*.jsonl")
        for line in file.read_text().splitlines()
    ]
    found = {(step, row): digest for step, row, digest in lines}
    ordered = json.dumps([found[key] for key in sorted(found)])
    return hashlib.sha256(ordered.encode()).hexdigest()


def losses(run: Path) -> np.ndarray:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return np.array([line["loss"] for line in lines if "loss" in line])


def state(run: Path) -> dict[str, str]:
    """Hashes of all results of a run: tensors, counters and log, without times."""
    last = newest(run, print)
    assert last is not None
    verify(last)
    files = [*last.glob("*.safetensors"), last.parent / "best" / "model.safetensors"]
    digests = {str(f.relative_to(run)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    counters = json.loads((last / "state.json").read_text())["state"] | {"seconds": 0}
    digests["state"] = hashlib.sha256(json.dumps(counters).encode()).hexdigest()
    digests["log.jsonl"] = hashlib.sha256((run / "log.jsonl").read_bytes()).hexdigest()
    return digests


def killed(arguments: list[str], run: Path, kills: int, steps: int, seed: int) -> int:
    """Runs the command and kills a rank at `kills` random moments. Returns the number of kills."""
    chance = random.Random(seed)
    marks = sorted(chance.sample(range(steps // 10, steps), kills))
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done = 0
    files = [run / f"process-{rank}" for rank in range(2)]
    for mark in marks:
        while process.poll() is None and not (reached(run) >= mark and all(map(alive, files))):
            time.sleep(0.02)
        if process.poll() is not None:
            break
        time.sleep(chance.uniform(0, 0.3))
        victims = [int(file.read_text()) for file in files]
        for file in files:  # another process may get a free id; restarted workers write theirs anew
            file.unlink()
        os.kill(chance.choice(victims), signal.SIGKILL)
        done += 1
    assert process.wait() == 0, "torchrun did not finish the run"
    return done


def alive(file: Path) -> bool:
    """True if a worker has written its process id since the last kill."""
    return file.exists() and bool(file.read_text())


def reached(run: Path) -> int:
    try:
        lines = (run / "log.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["step"] if lines else 0
    except (OSError, ValueError):
        return 0


def main() -> int:
    if sys.argv[1:2] == ["--"]:
        return worker(sys.argv[2:])
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="a new folder for the runs")
    add("--steps", type=int, default=200)
    add("--kills", type=int, default=3)
    add("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True)
    ways = [("plain", 1), ("ddp", 1), ("ddp", 2), ("ddp", 4), ("fsdp", 1), ("fsdp", 2)]
    print("| strategy | processes | seconds | global batches | largest difference of the loss |")
    print("|---|---:|---:|---|---:|", flush=True)
    first = args.out / "plain-1"
    for strategy, processes in ways:
        run = args.out / f"{strategy}-{processes}"
        start = time.perf_counter()
        arguments = command(run, args.steps, processes, strategy)
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        assert len(losses(run)) == args.steps
        assert global_batches(run) == global_batches(first), "other batches"
        apart = np.abs(losses(run) / losses(first) - 1)
        print(
            f"| {strategy} | {processes} | {seconds:.0f} | {global_batches(run)[:12]}… "
            f"| {apart.max():.1e}, {np.median(apart):.1e} in the median |",
            flush=True,
        )
        assert apart.max() < 1e-3, "not the same curve"
    run, straight = args.out / "killed", args.out / "ddp-2"
    arguments = command(run, args.steps, 2, "ddp", restarts=args.kills)
    done = killed(arguments, run, args.kills, args.steps, args.seed)
    same = state(run) == state(straight)
    files = len(state(straight))
    print(
        f"\n2 processes, a rank killed {done} times: {files} hashes {'equal' if same else 'DIFFER'}"
    )
    return 0 if same and done else 1
