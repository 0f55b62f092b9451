"""The real command in its own processes: kills, interrupts and refusals."""

import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

from unmask.cli import main

STEPS = 36
TEXT = "\n".join(f"Number {number} follows number {number - 1}." for number in range(1, 120))
SETTINGS = {
    "data.separator": "line",
    "data.tokenizer.kind": "characters",
    "data.length": "16",
    "backbone.width": "16",
    "backbone.depth": "2",
    "backbone.heads": "2",
    "backbone.dropout": "0.1",
    "training.steps": str(STEPS),
    "training.batch": "8",
    "training.micro_batch": "3",
    "training.warmup": "10",
    "training.ema": "0.9",
    "training.log_every": "1",
    "training.save_every": "6",
    "training.validate_every": "12",
    "training.sample_every": "15",
    "training.device": "cpu",
}


class Command:
    """`unmask train demo` on a tiny text and a tiny network, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "text.txt").write_text(TEXT)
        own = {"data.train": folder / "text.txt", "data.cache": folder / "cache"}
        self.settings = {**SETTINGS, **own}

    def argv(self, run: str, **changes: str) -> list[str]:
        settings = {**self.settings, **{key.replace("__", "."): v for key, v in changes.items()}}
        pairs = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
        return ["train", "demo", "--run", str(self.folder / run), *pairs]

    def start(self, run: str, **changes: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "unmask", *self.argv(run, **changes)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # the number of threads changes bits
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, run: str, step: int, process: subprocess.Popen[str]) -> None:
        """Waits until the log has reached a step."""
        log = self.folder / run / "log.jsonl"
        while not (log.exists() and f'"step": {step},' in log.read_text()):
            assert process.poll() is None, f"ended before step {step}: {process.communicate()}"
            time.sleep(0.01)


@pytest.fixture(scope="module")
def command(tmp_path_factory) -> Command:
    return Command(tmp_path_factory.mktemp("end to end"))


@pytest.fixture(scope="module")
def straight(command) -> Path:
    """An undisturbed run in this process. Disturbed runs have their own processes."""
    said, errors, threads = io.StringIO(), io.StringIO(), torch.get_num_threads()
    torch.set_num_threads(1)  # as in the other processes: the number of threads changes bits
    with redirect_stdout(said), redirect_stderr(errors):
        assert main(command.argv("straight")) == 0
    torch.set_num_threads(threads)
    assert errors.getvalue() == ""
    last = said.getvalue().splitlines()[-1]
    assert last == f"      unmask generate {command.folder / 'straight'}"
    return command.folder / "straight"


def hashes(folder: Path, pattern: str = "*") -> dict[str, str]:
    """SHA-256 of files, by their path in the folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob(pattern))
        if path.is_file()
    }


def log_of(run: Path) -> list[dict]:
    """The log without times."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


def assert_same_bits(run: Path, other: Path) -> None:
    weights = hashes(run, "*.safetensors")
    last = f"checkpoints/step-{STEPS:08d}"
    assert {f"{last}/{name}.safetensors" for name in ("model", "ema", "optimizer")} <= set(weights)
    assert {"checkpoints/best/model.safetensors", "model/model.safetensors"} <= set(weights)
    assert weights == hashes(other, "*.safetensors")
    assert log_of(run) == log_of(other)
    assert (run / "samples.jsonl").read_bytes() == (other / "samples.jsonl").read_bytes()


# kills are also in tests/training/test_resume.py
@pytest.mark.parametrize("kill", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_interrupted_and_killed_at_random_steps_ends_with_the_same_bits(
    command, straight, kill
):
    seed, run = random.randrange(10**6), f"disturbed-{kill}"
    print(f"seed {seed}")  # pytest shows it if the test fails
    chance = random.Random(seed)
    assert_ctrl_c_says_how_to_resume(command, run, chance.randrange(1, 12))
    if kill:
        step = chance.randrange(16, 30)
        process = command.start(run)
        command.wait_for(run, step, process)
        time.sleep(chance.uniform(0, 0.03))  # at any moment of a step, a validation or a save
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"ended before it was killed at step {step}"
        process.communicate()
    process = command.start(run)
    said, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert "resuming" in said
    assert_same_bits(command.folder / run, straight)


def assert_ctrl_c_says_how_to_resume(command: Command, run: str, step: int) -> None:
    process = command.start(run)
    command.wait_for(run, step, process)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    (line,) = errors.splitlines()
    assert line.startswith("unmask: interrupted; stopped after step ")
    stopped = int(line.split("step ")[1].split(";")[0])
    assert (command.folder / run / "checkpoints" / f"step-{stopped:08d}").is_dir()
    assert "resume with: unmask train demo --run " in line
    assert f"--training.steps {STEPS}" in line
    assert f"stopped at step {stopped}, saved" in said


def test_a_run_of_another_configuration_is_refused_and_left_untouched(command, straight, capsys):
    before = hashes(straight)
    assert main(command.argv("straight", training__lr="0.1", training__clip="0.5")) == 2
    out, err = capsys.readouterr()
    assert out.startswith("recipe demo, run folder ")
    assert err.startswith(f"unmask: error: {straight} belongs to another configuration: ")
    assert "training.clip was 1.0, is 0.5; training.lr was" in err
    assert err.count("\n") == 1
    assert hashes(straight) == before
