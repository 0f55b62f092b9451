"""Saving in the background, retention of checkpoints, and the lock of a run folder."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from pathlib import Path

import pytest
import torch
from same_runs import assert_same
from training_stand_in import TinyResult, trainer

from unmask.errors import UnmaskError
from unmask.files import tensors
from unmask.files.lock import in_use, locked
from unmask.files.storage import read_json, verify
from unmask.files.tensors import read_weights
from unmask.training.checkpoints import checkpoint
from unmask.training.checkpoints.background_writer import BackgroundWriter
from unmask.training.checkpoints.checkpoint import Entry, Retention
from unmask.training.signals import Interrupted

QUIET = {"steps": 12, "save_every": 4, "validate": None, "sample": None, "log_every": 1}


@pytest.fixture
def gate(monkeypatch):
    """Makes saves wait until the gate is opened."""
    opened, entered = threading.Event(), threading.Event()
    write = tensors.write_weights

    def waiting(folder, tensors, name="model"):
        entered.set()
        assert opened.wait(20)
        write(folder, tensors, name)

    monkeypatch.setattr(checkpoint, "write_weights", waiting)
    opened.entered = entered
    yield opened
    opened.set()


def steps_of(run: Path) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoint.by_step(run)]


def test_a_checkpoint_holds_the_weights_of_its_step_and_training_does_not_wait(tmp_path, gate):
    saver, weight = BackgroundWriter(tmp_path, Retention(2)), torch.zeros(3)
    saver.save(1, {"model": {"a": weight}}, {"state": {}}, {})
    assert gate.entered.wait(20)
    weight.fill_(9.0)  # the next step
    saver.check()
    assert steps_of(tmp_path) == []
    second = threading.Thread(
        target=saver.save, args=(2, {"model": {"a": weight}}, {"state": {}}, {})
    )
    second.start()
    time.sleep(0.05)
    assert second.is_alive()  # one at a time: the copies of the first are still being read
    gate.set()
    second.join()
    saver.wait()
    assert saver.last == checkpoint.folder(tmp_path, 2)
    values = [read_weights(checkpoint.folder(tmp_path, step))["a"][0].item() for step in (1, 2)]
    assert values == [0.0, 9.0]
    saver.close()


def test_best_weights_and_a_checkpoint_do_not_wait_for_each_other(tmp_path, gate):
    saver, weights = BackgroundWriter(tmp_path, Retention(2)), {"a": torch.zeros(3)}
    saver.save_best(weights, {"step": 4})
    assert gate.entered.wait(20)
    saver.save(4, {"model": weights}, {"state": {}}, {})  # at the same step: the loop continues
    weights["a"].fill_(9.0)
    assert not (tmp_path / "checkpoints" / "best").exists()
    gate.set()
    saver.wait()
    assert saver.last == checkpoint.folder(tmp_path, 4)
    for folder in (tmp_path / "checkpoints" / "best", saver.last):
        assert read_weights(folder)["a"].tolist() == [0.0] * 3
    saver.close()


def test_an_error_while_writing_ends_the_run_with_one_line(tmp_path, monkeypatch):
    write, failed = tensors.write_weights, threading.Event()

    def failing(folder, tensors, name="model"):
        if "00000008" in str(folder):
            failed.set()
            raise PermissionError(13, "Permission denied", str(folder))
        write(folder, tensors, name)

    monkeypatch.setattr(checkpoint, "write_weights", failing)
    run = trainer(tmp_path, **{**QUIET, "steps": 100, "save_every": 8, "keep": 9})
    batch = run.loader.batch

    def waiting(step, part):
        if step == 9:
            assert failed.wait(20)
            wait([task for _, task in run.saver.tasks.values()])
        return batch(step, part)

    run.loader.batch = waiting
    with pytest.raises(
        UnmaskError, match="checkpoint at step 8 could not be written: Perm"
    ) as seen:
        run.fit()
    assert run.state.step in (9, 10)  # the next step, not the next save
    assert "none yet" in str(seen.value)
    assert "\n" not in str(seen.value)
    assert steps_of(tmp_path) == []


def small_disk(folder: Path, size: str) -> bool:
    """Mounts a small file system, if the user may."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return (
        shutil.which("mount") is not None
        and not subprocess.run(command, capture_output=True).returncode
    )


@pytest.mark.parametrize("real", [True, False])
def test_a_full_disk_ends_the_run_with_the_last_checkpoint_intact(tmp_path, monkeypatch, real):
    disk = tmp_path / "disk"
    disk.mkdir()
    if real and not small_disk(disk, "100k"):
        pytest.skip("mounting a tmpfs needs root; the other form of this test does not")
    try:
        run = disk / "run"
        options = {**QUIET, "steps": 2000, "save_every": 2, "keep": 100 if real else 2}
        if not real:
            write, saves = tensors.write_weights, []

            def filling(folder, tensors, name="model"):
                saves.append(name)
                if len(saves) > 4:  # the second file of the second checkpoint
                    (folder / f"{name}.safetensors").write_bytes(b"half")
                    raise OSError(28, "No space left on device")
                write(folder, tensors, name)

            monkeypatch.setattr(checkpoint, "write_weights", filling)
        with pytest.raises(UnmaskError, match="disk full: training stopped at step") as caught:
            trainer(run, **options).fit()
        monkeypatch.undo()
        last = checkpoint.by_step(run)[-1]
        assert str(last) in str(caught.value)
        for path in checkpoint.by_step(run):
            verify(path)
        assert [path for path in (run / "checkpoints").iterdir() if path.name[0] == "."] == []
        for path in checkpoint.by_step(run)[:-1]:
            shutil.rmtree(path)  # frees space
        steps = checkpoint.step_of(last) + 6
        assert trainer(run, **{**options, "steps": steps, "keep": 1}).fit().step == steps
    finally:
        if real:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_sigterm_in_the_middle_of_a_save_waits_for_it(tmp_path, gate):
    run = trainer(tmp_path / "run", **QUIET)
    batch = run.loader.batch

    def signalling(step, part):
        if step == 5:  # the save of step 4 waits at the gate
            assert gate.entered.wait(20)
            signal.raise_signal(signal.SIGTERM)
            threading.Timer(0.1, gate.set).start()
        return batch(step, part)

    run.loader.batch = signalling
    began = time.monotonic()
    with pytest.raises(Interrupted):
        run.fit()
    assert time.monotonic() - began < 10
    assert steps_of(tmp_path / "run") == [4, 6]
    for path in checkpoint.by_step(tmp_path / "run"):
        verify(path)


@pytest.mark.parametrize("work", ["validate", "sample"])
def test_a_signal_does_not_wait_for_a_long_validation_which_is_done_on_resume(tmp_path, work):
    options = {"steps": 6, "validate_every": 3, "sample_every": 3, "save_every": 4, "log_every": 2}
    trainer(tmp_path / "straight", **options).fit()
    for step in (3, 6):  # in the middle, and after the last step
        run = trainer(tmp_path / "stopped", **options)
        whole = getattr(run, work)

        def stopped(whole=whole, run=run, step=step):
            if run.state.step == step:
                signal.raise_signal(signal.SIGTERM)
                raise AssertionError("it went on")
            return whole()

        setattr(run, work, stopped)
        with pytest.raises(Interrupted):
            run.fit()
        saved = checkpoint.folder(tmp_path / "stopped", step) / "state.json"
        assert read_json(saved)["state"]["owed"] == work
    assert trainer(tmp_path / "stopped", **options).fit().owed == ""
    assert_same(tmp_path / "stopped", tmp_path / "straight")


def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    options = {**QUIET, "keep": 3}
    trainer(tmp_path / "straight", **options).fit()
    trainer(tmp_path / "jumping", **{**options, "steps": 8}).fit()
    times = iter(range(4_000_000_000, 0, -1_000_000))
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    # the newest has the oldest time
    for age, path in enumerate(checkpoint.by_step(tmp_path / "jumping")):
        for file in [path, *path.rglob("*")]:
            os.utime(file, (2_000_000_000 - 10**8 * age,) * 2)
    trainer(tmp_path / "jumping", **options).fit()
    assert_same(tmp_path / "jumping", tmp_path / "straight", best=False)


def test_retention_selects_the_newest_the_best_and_every_nth():
    bounds = {10: 3.0, 20: 1.0, 30: 2.0, 40: 2.0, 50: 9.0, 60: None}
    entries = {step: Entry(nats, good=True) for step, nats in bounds.items()}
    assert Retention(2).keeps(entries) == {50, 60}
    assert Retention(1, best=2).keeps(entries) == {20, 30, 60}
    assert Retention(1, every=30).keeps(entries) == {30, 60}
    stopped = {**entries, 65: Entry(0.5), 67: Entry(0.1)}
    assert Retention(2, best=1, every=65).keeps(stopped) == {20, 60, 65, 67}


def test_the_best_and_every_nth_checkpoint_are_kept(tmp_path):
    bounds = iter([3.0, 1.0, 2.0, 4.0, 5.0, 6.0])
    options = {**QUIET, "save_every": 2, "validate_every": 2, "keep": 1}
    options["validate"] = lambda: TinyResult(next(bounds))
    trainer(tmp_path, **options, keep_best=2, keep_every=8).fit()
    assert steps_of(tmp_path) == [4, 6, 8, 12]
    verify(tmp_path / "checkpoints" / "best")


HOLD = """
import sys, time
from pathlib import Path
from unmask.files.lock import locked
with locked(Path(sys.argv[1])):
    (Path(sys.argv[1]) / "work").touch()
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_processes_cannot_train_in_one_folder_and_a_killed_one_releases_it(tmp_path):
    run = tmp_path / "deep" / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        assert in_use(run)
        with pytest.raises(UnmaskError, match=f"trained by process {holder.pid} on"), locked(run):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert not in_use(run)
    with locked(run):
        assert in_use(run)
        assert in_use(run)  # the check does not release the lock
    assert not (run / "lock").exists()


def test_training_works_on_a_file_system_without_locks(tmp_path, monkeypatch):
    def flock(handle: int, how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    with locked(tmp_path / "run"):
        assert not in_use(tmp_path / "run")
        (tmp_path / "run" / "work").touch()


def test_an_empty_new_folder_is_removed_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "run"):
        raise ZeroDivisionError
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written_is_an_error_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    for run in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/run")):
        with (
            pytest.raises(UnmaskError, match=r"cannot write in .*: .*; choose another"),
            locked(run),
        ):
            pass
