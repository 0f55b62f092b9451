"""A run is the same on any number of processes and under any strategy, also after kills."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from plugins import plugin_file
from same_runs import assert_same
from training_stand_in import TinyMethod, trainer

from unmask.errors import UnmaskError
from unmask.files.jsonl import JsonLines
from unmask.files.storage import read_json
from unmask.files.tensors import read_weights
from unmask.methods.method import METHODS
from unmask.training.checkpoints.checkpoint import newest
from unmask.training.distributed.process_group import ProcessGroup, joined
from unmask.training.distributed.strategy import choose_strategy
from unmask.training.training_config import DistributedConfig

SCRIPT = Path(__file__).parents[1] / "helpers" / "several_processes.py"
OPTIONS = {"steps": 8, "save_every": 4, "keep": 9}
# a network of a plugin, a method with its own parameters, methods of uniform tokens, a task head
PLUGINS = ("gated_recurrence", "plaid", "duo", "duo_distilled", "text_classifier")
OTHERS: dict[str, dict[str, Any]] = {
    plugin: {"plugin": plugin}
    for plugin in PLUGINS
    if plugin_file(plugin).exists() or plugin in METHODS
}
OTHERS["muon"] = {"optimizer": "muon", "weight_decay": 0.1, "clip": 0.0}
# they have further states: own parameters, a teacher and another optimizer
RESUMED = ("plaid", "duo_distilled", "muon")


def job(run: Path, strategy: str, world: int, **more: Any) -> dict[str, Any]:
    own = {name: more.pop(name) for name in ("fault", "timeout", "plugin") if name in more}
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
    """The hash of every row of every global batch in all processes."""
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
    """The results of all jobs. One process runs them once,
    and other pytest workers read its results.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kinds = {
            "plain": ("plain", 1, {}),
            "ddp-2": ("ddp", 2, {"micro_batch": 1}),
            "fsdp-2": ("fsdp", 2, {"micro_batch": 3, "checkpoint_activations": True}),
        }
        self.curves = [name for name in kinds if name != "plain"]
        jobs = {name: job(folder / name, *kind[:2], **kind[2]) for name, kind in kinds.items()}
        # stopped after four steps by a signal to one process, then resumed with another setup
        for other, strategy, world in [("a", "plain", 1), ("b", "fsdp", 4)]:
            first = "fsdp" if other == "a" else "ddp"
            fault = {"kind": "term", "rank": 1, "step": 3}
            jobs[f"stopped-{other}"] = job(folder / f"moved-{other}", first, 2, fault=fault)
            jobs[f"moved-{other}"] = job(folder / f"moved-{other}", strategy, world)
        for name, own in OTHERS.items():
            more = {**own, "steps": 4, "save_every": 2}
            jobs[name] = job(folder / name, "plain", 1, **more)
            jobs[f"{name}-ddp"] = job(folder / f"{name}-ddp", "ddp", 2, **more)
            run, fault = folder / f"{name}-fsdp", {"kind": "term", "rank": 1, "step": 2}
            if name in RESUMED:
                jobs[f"{name}-stopped"] = job(run, "fsdp", 2, fault=fault, **more)
            jobs[f"{name}-fsdp"] = job(run, "fsdp", 2, **more)
        kill = {"kind": "kill", "rank": 1, "step": 5}
        jobs["killed"] = job(folder / "again", "ddp", 2, fault=kill)
        jobs["again"] = job(folder / "again", "ddp", 2)
        hang = {"kind": "hang", "rank": 1, "step": 2}
        jobs["hangs"] = job(folder / "hangs", "ddp", 2, fault=hang, timeout=6.0)
        # the second of two processes has rows 4 to 7
        jobs["nan-2"] = job(folder / "nan-2", "ddp", 2, fault={"nan": [5, 4]})
        jobs["straight"] = job(folder / "straight", "ddp", 2)
        jobs["nan-1"] = job(folder / "nan-1", "plain", 1, micro_batch=4, fault={"nan": [5, 4]})
        (folder / "file").touch()
        jobs["refused"] = {**job(folder / "file" / "run", "ddp", 2), "refused": True}
        file, outcome = folder / "jobs.json", folder / "outcome.json"
        if not outcome.exists():
            file.write_text(json.dumps(list(jobs.values())))
            command = [sys.executable, str(SCRIPT), str(file)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stderr
            outcome.write_text(json.dumps([json.loads(done.stdout), done.stderr]))
        codes, self.said = json.loads(outcome.read_text())
        self.codes = dict(zip(jobs, codes, strict=True))


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Done:
    base = tmp_path_factory.getbasetemp()  # each worker of pytest has its own
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "processes"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Done(folder)


def test_any_number_of_processes_gives_the_same_loss_from_the_same_batches(done):
    plain = done.folder / "plain"
    assert done.codes["plain"] == [0]
    assert len(rows(plain)) == 8 * 8
    assert "find_unused_parameters" not in done.said
    for name in done.curves:
        run = done.folder / name
        assert set(done.codes[name]) == {0}, done.said
        assert rows(run) == rows(plain)
        torch.testing.assert_close(losses(run), losses(plain), rtol=2e-6, atol=0)
        for part in ("model", "ema", "optimizer"):
            torch.testing.assert_close(last(run, part), last(plain, part), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("other", ["a", "b"])
def test_a_run_resumes_with_other_processes_and_another_strategy(done, other):
    run, plain = done.folder / f"moved-{other}", done.folder / "plain"
    assert done.codes[f"stopped-{other}"] == [130, 130]  # the signal came to one of them
    assert set(done.codes[f"moved-{other}"]) == {0}
    torch.testing.assert_close(losses(run), losses(plain), rtol=2e-6, atol=0)
    for part in ("model", "ema", "optimizer"):
        torch.testing.assert_close(last(run, part), last(plain, part), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", OTHERS)
def test_plugins_and_muon_are_trained_by_several_processes_too(done, name, strategy):
    run, plain = done.folder / f"{name}-{strategy}", done.folder / name
    if name in RESUMED:
        assert done.codes[f"{name}-stopped"] == [130, 130], done.said
    assert [*done.codes[name], *done.codes[f"{name}-{strategy}"]] == [0, 0, 0], done.said
    torch.testing.assert_close(losses(run), losses(plain), rtol=2e-6, atol=0)
    for part in ("model", "ema", "optimizer"):  # Adam magnifies rounding errors of tiny gradients
        torch.testing.assert_close(last(run, part), last(plain, part), rtol=2e-4, atol=5e-6)


def test_a_process_that_hangs_is_named(done):
    assert done.codes["hangs"] == [2, -signal.SIGKILL]
    assert "rank 1 of 2 did not respond for 6 s (distributed.timeout); training" in done.said


@pytest.mark.parametrize("limit, told", [(0.05, "did not respond for 0.05 s"), (60, "has left")])
def test_a_connection_that_closes_after_the_time_limit_is_a_process_that_hangs(limit, told):
    """torch closes connections when a collective is late, which may fail another collective."""
    group = ProcessGroup()
    group.world, group._store, group.timeout = 2, dist.HashStore(), limit
    closed = pytest.raises(UnmaskError, match=f"rank 1 of 2 {told}.*; stopped")
    with closed, group.watched(lambda: "stopped"), group.stepping():
        time.sleep(0.06)
        raise RuntimeError("gloo: Connection closed by peer")


def test_if_the_main_process_refuses_the_others_end_silently(done):
    assert done.codes["refused"] == [2, 2]
    assert "rank 0: cannot write in" in done.said
    assert "rank 1: cannot" not in done.said
    assert "Traceback" not in done.said


def test_work_of_the_main_process_may_take_longer_than_the_time_limit():
    """The others enter no collective before it is done, so none can time out."""
    groups, store, made = [ProcessGroup(), ProcessGroup()], dist.HashStore(), threading.Event()
    for rank, group in enumerate(groups):
        group.rank, group.world, group._store = rank, 2, store

    def make():
        time.sleep(0.1)
        made.set()
        return "all"

    groups[0]._broadcast = lambda text: text
    groups[1]._broadcast = lambda text: f"+{made.is_set()}"
    with ThreadPoolExecutor(1) as other:
        heard = other.submit(groups[1].broadcast, lambda: "nothing")
        assert groups[0].broadcast(make) == "all"
        assert heard.result(20) == "True"


@pytest.fixture
def alone(monkeypatch):
    """A process group of one process, with the real backends of torch."""
    monkeypatch.delenv("RANK", raising=False)

    @contextmanager
    def placed(strategy):
        with joined(DistributedConfig(strategy), torch.device("cpu")) as group:
            yield choose_strategy(DistributedConfig(strategy), group, torch.device("cpu"), "fp32")

    return placed


def test_ddp_has_only_the_parameters_of_the_method(alone):
    """An unused parameter would make the host wait for the GPU at every step."""
    with alone("ddp") as strategy:
        method = TinyMethod()
        strategy.place(method)
        assert len(list(strategy._ddp.parameters())) == len(list(method.parameters()))


def test_validation_under_fsdp_holds_one_gathered_tensor_at_a_time(alone, monkeypatch):
    from unmask.training.distributed import ddp_fsdp as distributed

    whole, held, most = distributed._full, [], []

    def full(tensor):
        found = whole(tensor).clone()
        held.append(weakref.ref(found))
        most.append(sum(each() is not None for each in held))
        return found

    monkeypatch.setattr(distributed, "_full", full)
    with alone("fsdp") as strategy:
        method = TinyMethod()
        trained = strategy.place(method)
        with torch.no_grad():
            for parameter in trained.parameters():
                parameter.add_(1.0)
        expected = {name: whole(tensor).clone() for name, tensor in trained.state_dict().items()}
        with strategy.averages_loaded(method, trained, None):
            assert all(torch.equal(method.state_dict()[name], expected[name]) for name in expected)
    assert max(most) <= 2  # the next one exists before the previous one is freed


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


def test_a_killed_process_changes_nothing(done):
    assert done.codes["killed"] == [2, -signal.SIGKILL]
    assert "rank 1 of 2 has left" in done.said
    assert done.codes["again"] == [0, 0], done.said
    assert_same(done.folder / "again", done.folder / "straight", best=False)


@pytest.mark.slow
def test_a_killed_process_that_torchrun_restarts_changes_nothing(done, tmp_path):
    """torchrun ends the others and restarts all.
    They resume with the bits of the undisturbed run.
    """
    fault = {"kind": "kill", "rank": 1, "step": 5}
    file = tmp_path / "killed.json"
    file.write_text(json.dumps(job(tmp_path / "killed", "ddp", 2, fault=fault)))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    options = ["--nproc-per-node", "2", "--max-restarts", "1", str(SCRIPT)]
    subprocess.run(
        [*torchrun, *options, str(file)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    assert (tmp_path / "killed-fault").exists()
    assert_same(tmp_path / "killed", done.folder / "straight", best=False)


def test_mistakes_are_reported_before_any_work(tmp_path, monkeypatch):
    with pytest.raises(UnmaskError, match=r"training\.batch 8 does not split over 3 processes"):
        group = ProcessGroup()
        group.world = 3
        group.share(8)
    with pytest.raises(UnmaskError, match="has no blocks to recompute"):
        trainer(tmp_path, checkpoint_activations=True)
    with pytest.raises(UnmaskError, match=r"unknown distributed\.strategy 'dpd'"):
        DistributedConfig(strategy="dpd")
    with pytest.raises(UnmaskError, match=r"distributed\.timeout must be"):
        DistributedConfig(timeout=0.0)
