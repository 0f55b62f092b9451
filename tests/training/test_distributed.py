"""On any number of processes, under any strategy, killed or not: the same run."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import assert_same
from training_stand_in import trainer

from unmask.errors import UnmaskError
from unmask.training import DistributedConfig, Group, newest, read_json, read_weights
from unmask.training.logging import JsonLines

SCRIPT = Path(__file__).parent / "several_processes.py"
OPTIONS = {"steps": 8, "save_every": 4, "keep": 9}


def job(run: Path, strategy: str, world: int, **more: Any) -> dict[str, Any]:
    own = {name: more.pop(name) for name in ("fault", "timeout") if name in more}
    return {
        "run": str(run),
        "strategy": strategy,
        "world": world,
        "options": {**OPTIONS, **more},
        **own,
    }


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in JsonLines(run / "log.jsonl").read() if "loss" in line]


def rows(run: Path) -> dict[tuple[int, int], str]:
    """The hash of every row of every global batch that the processes saw."""
    lines = [
        json.loads(line)
        for file in sorted(run.parent.glob(f"{run.name}-rows-*"))
        for line in file.read_text().splitlines()
    ]
    found = {(step, row): digest for step, row, digest in lines}
    assert len(found) == len(lines), "a row was seen twice"
    return found


def last(run: Path, name: str) -> dict[str, torch.Tensor]:
    return read_weights(newest(run, pytest.fail), name)


class Done:
    """All jobs in one process, which is started once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kinds = {
            "plain": ("plain", 1, {}),
            "ddp-1": ("ddp", 1, {}),
            "ddp-2": ("ddp", 2, {"micro_batch": 1}),
            "ddp-4": ("ddp", 4, {}),
            "fsdp-1": ("fsdp", 1, {"checkpoint_activations": True}),
            "fsdp-2": ("fsdp", 2, {"micro_batch": 3, "checkpoint_activations": True}),
        }
        self.curves = [name for name in kinds if name != "plain"]
        jobs = {name: job(folder / name, *kind[:2], **kind[2]) for name, kind in kinds.items()}
        # stopped after four steps by a signal to one process, then continued as something else
        for other, strategy, world in [("a", "plain", 1), ("b", "fsdp", 4)]:
            first = "fsdp" if other == "a" else "ddp"
            fault = {"kind": "term", "rank": 1, "step": 3}
            jobs[f"stopped-{other}"] = job(folder / f"moved-{other}", first, 2, fault=fault)
            jobs[f"moved-{other}"] = job(folder / f"moved-{other}", strategy, world)
        hang = {"kind": "hang", "rank": 1, "step": 2}
        jobs["hangs"] = job(folder / "hangs", "ddp", 2, fault=hang, timeout=4.0)
        # of two processes the second has rows 4 to 7
        jobs["nan-2"] = job(folder / "nan-2", "ddp", 2, fault={"nan": [5, 4]})
        jobs["nan-1"] = job(folder / "nan-1", "plain", 1, micro_batch=4, fault={"nan": [5, 4]})
        file = folder / "jobs.json"
        file.write_text(json.dumps(list(jobs.values())))
        command = [sys.executable, str(SCRIPT), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        self.codes = dict(zip(jobs, json.loads(done.stdout), strict=True))
        self.said = done.stderr


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Done:
    return Done(tmp_path_factory.mktemp("processes"))


def test_any_number_of_processes_gives_the_same_loss_from_the_same_batches(done):
    plain = done.folder / "plain"
    assert done.codes["plain"] == [0]
    assert len(rows(plain)) == 8 * 8
    for name in done.curves:
        run = done.folder / name
        assert set(done.codes[name]) == {0}, done.said
        assert rows(run) == rows(plain)
        torch.testing.assert_close(losses(run), losses(plain), rtol=2e-6, atol=0)
        for part in ("model", "ema", "optimizer"):
            torch.testing.assert_close(last(run, part), last(plain, part), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("other", ["a", "b"])
def test_a_run_goes_on_with_other_processes_and_another_strategy(done, other):
    run, plain = done.folder / f"moved-{other}", done.folder / "plain"
    assert done.codes[f"stopped-{other}"] == [130, 130]  # the signal came to one of them
    assert set(done.codes[f"moved-{other}"]) == {0}
    torch.testing.assert_close(losses(run), losses(plain), rtol=2e-6, atol=0)
    for part in ("model", "ema", "optimizer"):
        torch.testing.assert_close(last(run, part), last(plain, part), rtol=2e-4, atol=1e-6)


def test_a_process_that_hangs_is_named(done):
    assert done.codes["hangs"] == [2, -signal.SIGKILL]
    assert "rank 1 of 2 did not answer for 4 s (distributed.timeout); training" in done.said


def test_a_loss_that_is_no_number_in_one_process_is_skipped_by_all(done):
    for name in ("nan-1", "nan-2"):
        assert set(done.codes[name]) == {0}, done.said
    states = [
        read_json(newest(done.folder / name, pytest.fail) / "state.json")["state"]
        for name in ("nan-1", "nan-2")
    ]
    assert [state["skipped"] for state in states] == [1, 1]
    ours, theirs = (last(done.folder / name, "model") for name in ("nan-1", "nan-2"))
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=1e-6)
    assert all(tensor.isfinite().all() for tensor in theirs.values())


def test_a_killed_process_and_torchrun_change_nothing(tmp_path):
    """torchrun ends the others, starts all again, and they resume: the bits of the undisturbed run."""
    killed = {"kind": "kill", "rank": 1, "step": 5}
    for name, fault in [("straight", {}), ("killed", killed)]:
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(job(tmp_path / name, "ddp", 2, fault=fault)))
    both = tmp_path / "both.json"
    both.write_text(json.dumps([json.loads((tmp_path / "straight.json").read_text())]))
    subprocess.run([sys.executable, str(SCRIPT), str(both)], check=True, capture_output=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    options = ["--nproc-per-node", "2", "--max-restarts", "1", str(SCRIPT)]
    subprocess.run(
        [*torchrun, *options, str(tmp_path / "killed.json")],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert (tmp_path / "killed-fault").exists()
    assert_same(tmp_path / "killed", tmp_path / "straight", best=False)


def test_mistakes_are_told_before_anything_is_done(tmp_path, monkeypatch):
    with pytest.raises(UnmaskError, match=r"training\.batch 8 does not split over 3 processes"):
        group = Group()
        group.world = 3
        group.share(8)
    with pytest.raises(UnmaskError, match="needs a network made of blocks"):
        trainer(tmp_path, checkpoint_activations=True)
    for wrong in ({"strategy": "dpd"}, {"timeout": 0.0}):
        with pytest.raises(UnmaskError, match=f"distributed.{next(iter(wrong))} must be"):
            DistributedConfig(**wrong)
