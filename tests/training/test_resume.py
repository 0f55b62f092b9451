"""A killed, stopped or damaged run resumes with the bits of an undisturbed run."""

import json
import random
import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from same_runs import assert_same, log_of
from training_stand_in import trainer

from unmask.errors import UnmaskError
from unmask.files import storage
from unmask.files.storage import write_json
from unmask.files.tensors import read_weights
from unmask.training.checkpoints.checkpoint import (
    Retention,
    agree,
    begun,
    newest,
    recovered,
    restore,
    run_weights,
    save,
)
from unmask.training.signals import Interrupted, interruptible

SCRIPT = Path(__file__).parents[1] / "helpers" / "training_stand_in.py"
OPTIONS = {"steps": 20, "micro_batch": 3, "save_every": 4, "validate_every": 5, "log_every": 3}


def test_a_run_killed_at_three_random_steps_ends_with_the_same_bits(tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    kills = sorted(random.Random(seed).sample(range(4, 41), 3))
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    arguments = [str(part) for part in (SCRIPT, straight, killed, seed, *kills)]
    subprocess.run([sys.executable, *arguments], check=True, timeout=120)
    assert_same(killed, straight)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_prints_it_and_loses_nothing(tmp_path, number):
    trainer(tmp_path / "straight", **OPTIONS).fit()
    said = []
    run = trainer(tmp_path / "stopped", say=said.append, **OPTIONS)
    batch = run.loader.batch

    def signalling(step, part):
        if step == 9:
            signal.raise_signal(number)
        return batch(step, part)

    run.loader.batch = signalling
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as caught:
        run.fit()
    assert isinstance(caught.value, Interrupted)
    assert caught.value.step == 10
    assert signal.getsignal(number) is before
    assert "step-00000010" in said[-1]
    assert "saved" in said[-1]
    assert said.count("stopping after this step; press again to stop now") == 1
    trainer(tmp_path / "stopped", **OPTIONS).fit()
    assert_same(tmp_path / "stopped", tmp_path / "straight")


def test_signal_handlers_of_an_embedding_program_are_kept(monkeypatch):
    handler = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(signal, "getsignal", lambda number: None)  # as for a handler in C
        with interruptible():
            patch.undo()
            assert signal.getsignal(signal.SIGTERM) is handler
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_second_sigterm_does_not_lose_the_checkpoint(tmp_path):
    run = trainer(tmp_path, **OPTIONS)
    batch, save = run.loader.batch, run.checkpointer.save

    def signalling(step, part):
        if step == 9:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        return batch(step, part)

    def saving(state, good):
        if state.step == 10:
            signal.raise_signal(signal.SIGTERM)
        save(state, good)

    run.loader.batch, run.checkpointer.save = signalling, saving
    with pytest.raises(Interrupted):
        run.fit()
    assert newest(tmp_path, pytest.fail).name == "step-00000010"


@pytest.fixture
def python_minds_ctrl_c():
    """Makes Python handle SIGINT, which is ignored if a script started the tests
    in the background.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_second_ctrl_c_acts_at_once(tmp_path, python_minds_ctrl_c):
    run = trainer(tmp_path, **OPTIONS)

    def insist(step, part):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    run.loader.batch = insist
    with pytest.raises(KeyboardInterrupt) as caught:
        run.fit()
    assert not isinstance(caught.value, Interrupted)


PARTS = [
    "model.safetensors",
    "ema.safetensors",
    "optimizer.safetensors",
    "state.json",
    "manifest.json",
]


@pytest.mark.parametrize(
    ("name", "damage"),
    [*((name, "flip") for name in PARTS), *product((PARTS[0], PARTS[-1]), ("cut", "delete"))],
)
def test_a_damaged_newest_checkpoint_is_skipped(tmp_path, name, damage, finished_run):
    run = finished_run(tmp_path)
    victim = run / "checkpoints" / "step-00000020" / name
    content = victim.read_bytes()
    if damage == "delete":
        victim.unlink()
    elif damage == "cut":
        victim.write_bytes(content[:-1] if len(content) < 50 else content[:-40])
    else:
        place = random.Random(name).randrange(len(content) - 2)
        victim.write_bytes(content[:place] + bytes([content[place] ^ 64]) + content[place + 1 :])
    said = []
    trainer(run, say=said.append, **OPTIONS).fit()
    assert "step-00000020 is damaged" in said[0]
    assert "at step 16" in said[1]
    assert_same(run, finished_run.straight)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """Copies of one finished run."""
    straight = tmp_path_factory.mktemp("finished") / "run"
    trainer(straight, **OPTIONS).fit()

    def copy(folder: Path) -> Path:
        return Path(shutil.copytree(straight, folder / "run"))

    copy.straight = straight
    return copy


def test_if_every_checkpoint_is_damaged_nothing_is_deleted(tmp_path, finished_run):
    run = finished_run(tmp_path)
    for folder in (run / "checkpoints").glob("step-*"):
        (folder / "model.safetensors").unlink()
    with pytest.raises(UnmaskError, match="no intact checkpoint"):
        trainer(run, **OPTIONS).fit()
    assert log_of(run) == log_of(finished_run.straight)


def test_leftovers_are_cleared_by_training_and_left_alone_by_readers(tmp_path, finished_run):
    run = finished_run(tmp_path)
    (run / "checkpoints" / ".step-00000024.building").mkdir()
    (run / "checkpoints" / ".step-00000024.building" / "model.safetensors").write_bytes(b"half")
    assert newest(run, pytest.fail).name == "step-00000020"
    # another process may be writing it
    assert (run / "checkpoints" / ".step-00000024.building").exists()
    trainer(run, **OPTIONS).fit()
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == ["best", "step-00000016", "step-00000020"]


def test_a_checkpoint_killed_during_its_replacement_can_be_resumed(tmp_path, finished_run):
    run = finished_run(tmp_path)
    shutil.rmtree(run / "checkpoints" / "step-00000016")
    (run / "checkpoints" / "step-00000020").rename(run / "checkpoints" / ".step-00000020.replaced")
    assert begun(run)
    assert not begun(tmp_path)
    assert recovered(run, pytest.fail).name == "step-00000020"


def test_a_checkpoint_that_was_verified_is_not_searched_again(tmp_path, finished_run, monkeypatch):
    run = finished_run(tmp_path)
    found = recovered(run, pytest.fail)
    digest, read = storage._digest, []
    monkeypatch.setattr(storage, "_digest", lambda path: read.append(path) or digest(path))
    assert trainer(run, **OPTIONS).fit(found).step == 20
    assert read.count(found / "model.safetensors") == 1  # only when it is loaded


def test_a_finished_run_prints_that_it_is_finished(tmp_path, finished_run):
    run, said = finished_run(tmp_path), []
    again = trainer(run, say=said.append, **OPTIONS)
    assert again.fit().step == 20
    assert said == [f"{run} is already trained: all 20 steps are done"]
    expected = read_weights(run / "checkpoints" / "step-00000020", "ema")
    assert all(torch.equal(again.weights()[name], value) for name, value in expected.items())


def test_another_configuration_is_refused_by_name(tmp_path, finished_run):
    run = finished_run(tmp_path)
    with pytest.raises(
        UnmaskError, match=r"training\.clip was 1\.0, is 2\.0; training\.lr was"
    ) as caught:
        trainer(run, **OPTIONS, clip=2.0, lr=0.5).fit()
    assert "another configuration" in str(caught.value)
    assert "keep" not in str(caught.value)


def test_a_constant_rate_may_be_extended_and_a_cosine_may_not(tmp_path):
    trainer(tmp_path / "short", **OPTIONS).fit()
    assert trainer(tmp_path / "short", **{**OPTIONS, "steps": 24, "keep": 5}).fit().step == 24
    trainer(tmp_path / "long", **{**OPTIONS, "steps": 24}).fit()
    a, b = (run_weights_last(tmp_path / name) for name in ("short", "long"))
    assert all(torch.equal(a[key], b[key]) for key in a)
    trainer(tmp_path / "cosine", **OPTIONS, decay="cosine").fit()
    with pytest.raises(UnmaskError, match=r"training\.steps was 20, is 24"):
        trainer(tmp_path / "cosine", **{**OPTIONS, "steps": 24}, decay="cosine").fit()


def test_a_setting_that_an_older_version_did_not_have_is_at_its_default(tmp_path):
    write_json(tmp_path / "state.json", {"fingerprint": {"training": {"lr": 0.1}}})
    now = {"training": {"lr": 0.1, "optimizer": "adamw"}}
    agree(tmp_path, tmp_path, now, defaults={"training": {"lr": 0.3, "optimizer": "adamw"}})
    with pytest.raises(UnmaskError, match=r"training\.optimizer was 'adamw', is 'muon'"):
        now["training"]["optimizer"] = "muon"
        agree(tmp_path, tmp_path, now, defaults={"training": {"optimizer": "adamw"}})


def run_weights_last(run: Path) -> dict:
    return read_weights(newest(run, pytest.fail))


def test_run_weights_are_the_best_or_else_the_newest_averages(tmp_path, finished_run):
    run = finished_run(tmp_path)
    best = read_weights(run / "checkpoints" / "best")
    assert torch.equal(run_weights(run, pytest.fail)["head.weight"], best["head.weight"])
    (run / "checkpoints" / "best" / "model.safetensors").write_bytes(b"")
    said = []
    last = read_weights(run / "checkpoints" / "step-00000020", "ema")
    assert torch.equal(run_weights(run, said.append)["head.weight"], last["head.weight"])
    assert "best is damaged" in said[0]
    with pytest.raises(UnmaskError, match="no checkpoint yet"):
        run_weights(tmp_path / "nothing", pytest.fail)


def test_logs_are_truncated_to_the_step_of_the_checkpoint(tmp_path, finished_run):
    run, said = finished_run(tmp_path), []
    whole = log_of(run)
    shutil.rmtree(run / "checkpoints" / "step-00000020")
    with (run / "log.jsonl").open("a") as file:
        file.write('{"step": 21, "lo')  # left by a kill: removed without a message
    restore(run, run / "checkpoints" / "step-00000016", said.append)
    assert whole.startswith(log_of(run))
    assert json.loads(log_of(run).splitlines()[-1])["step"] == 15
    assert said == []
    (run / "log.jsonl").write_bytes(whole.replace(b"loss", b"lost", 1))
    trainer(run, say=said.append, **OPTIONS).fit()
    assert "log.jsonl differs from the copy in" in said[0]
    assert log_of(run) == whole
    restore(run, None, said.append)
    assert not (run / "log.jsonl").exists()


def test_a_damaged_later_checkpoint_is_not_kept_instead_of_a_good_one(tmp_path):
    parts = {"model": {"a": torch.zeros(1)}}
    for step in (10, 20):
        save(tmp_path, step, Retention(2), parts, {}, {})
    (tmp_path / "checkpoints" / "step-00000020" / "model.safetensors").unlink()
    save(tmp_path, 15, Retention(1), parts, {}, {})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000015"]
