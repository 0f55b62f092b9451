"""unmask check and unmask runs: the content of a run folder, and all damage in it."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from training_stand_in import trainer

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.files.storage import damages, remove, seal
from unmask.runs import inspect as inspection
from unmask.runs.inspect import inspect, status_of
from unmask.training.checkpoints import checkpoint
from unmask.training.logs.run_log import read_log

OPTIONS = {"steps": 12, "save_every": 4, "validate_every": 4, "log_every": 2, "sample_every": 6}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A complete run without an exported model."""
    run = tmp_path_factory.mktemp("inspection") / "run"
    (run / "tokenizer").mkdir(parents=True)
    (run / "config.yaml").write_text("seed: 3\n")
    (run / "tokenizer" / "vocabulary.json").write_text('{"kind": "bytes"}\n')
    seal(run, *checkpoint.SEALED)
    trainer(run, **OPTIONS).fit()
    return run


@pytest.fixture
def run(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def wrong(run: Path) -> dict[str, tuple[str, ...]]:
    return {part.name: part.problems for part in inspect(run) if part.problems}


def named(path: Path) -> str:
    return f"checkpoints/{path.name}"


def reseal(folder: Path) -> None:
    """Rewrites the manifest, as an attacker who changed the files would."""
    (folder / "manifest.json").unlink()
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    seal(folder, *files)


def test_a_whole_run_has_nothing_wrong(run):
    assert wrong(run) == {}
    assert [part.name for part in inspect(run)] == [
        *("config.yaml, tokenizer", "checkpoints/step-00000008", "checkpoints/step-00000012"),
        *("checkpoints/best", "log.jsonl", "samples.jsonl", "clock.jsonl"),
    ]


def damage(files: list[Path], kind: str, dice: random.Random) -> None:
    """Damages a file in one way."""
    path = dice.choice(files)
    content = path.read_bytes()
    match kind:
        case "delete":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "truncate":
            path.write_bytes(content[: dice.randrange(len(content))])
        case "append":
            path.write_bytes(content + b"x")
        case "flip":
            place = dice.randrange(len(content))
            flipped = content[place] ^ 1 << dice.randrange(8)
            path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        case "swap":
            other = dice.choice([each for each in files if each.read_bytes() != content])
            path.write_bytes(other.read_bytes())
            other.write_bytes(content)


@pytest.mark.parametrize("kind", ["delete", "empty", "truncate", "append", "flip", "swap"])
def test_every_damage_is_found_and_the_run_resumes_or_refuses(whole, run, kind):
    dice = random.Random(kind)
    for _ in range(4):
        shutil.rmtree(run)
        shutil.copytree(whole, run)
        files = sorted(
            path for path in run.rglob("*") if path.is_file() and path.name != "loss.png"
        )
        damage(files, kind, dice)
        assert wrong(run)
        said = []
        try:
            trainer(run, say=said.append, **{**OPTIONS, "steps": 14}).fit()
        except UnmaskError as error:
            assert "no intact checkpoint" in str(error)
        else:
            assert not [name for name in wrong(run) if "step" in name or "jsonl" in name]


def test_swapped_checkpoints_and_cut_lines_are_named(run):
    a, b = checkpoint.by_step(run)
    a.rename(run / "aside")
    b.rename(a)
    (run / "aside").rename(b)
    assert wrong(run) == {
        "checkpoints/step-00000008": ("it holds step 12",),
        "checkpoints/step-00000012": ("it holds step 8",),
    }
    with pytest.raises(UnmaskError, match="no intact checkpoint"):
        trainer(run, **OPTIONS).fit()


def test_a_line_that_is_being_written_is_named(run):
    with (run / "log.jsonl").open("a") as file:
        file.write('{"step": 13, "lo')
    assert wrong(run) == {"log.jsonl": ("it has an incomplete line; training drops it",)}


@pytest.fixture
def live(run, monkeypatch) -> Path:
    """A run that appears to be training."""
    monkeypatch.setattr(inspection, "in_use", lambda run: True)
    monkeypatch.setattr(inspection, "_PAUSE", 0)
    return run


def test_files_that_a_live_run_removes_are_not_damage(live, monkeypatch):
    first, second = checkpoint.by_step(live)

    def late(path: Path) -> Iterator[str]:
        if path == first and first.exists():
            remove(first)
        return checkpoint.wrong_with(path)

    monkeypatch.setattr(inspection, "wrong_with", late)
    names = [part.name for part in inspect(live)]
    assert wrong(live) == {}
    assert named(first) not in names and named(second) in names


def test_files_that_a_live_run_replaces_are_checked_again(live, monkeypatch):
    best = live / "checkpoints" / "best"
    new = Path(shutil.copytree(best, live / "new"))
    (best / "model.safetensors").write_bytes(b"of another time than the manifest")

    def torn(path: Path, *names: str) -> Iterator[str]:
        found = list(damages(path, *names))
        if path == best and new.exists():
            shutil.rmtree(best)
            new.rename(best)
        yield from found

    monkeypatch.setattr(inspection, "damages", torn)
    assert wrong(live) == {}


def test_the_step_of_a_live_run_follows_a_replaced_checkpoint(live, monkeypatch):
    first, second = checkpoint.by_step(live)
    aside = second.rename(live / "aside")

    def late(path: Path, *names: str) -> Iterator[str]:
        if first.exists():
            remove(first)
            aside.rename(second)
        return damages(path, *names)

    monkeypatch.setattr(inspection, "damages", late)
    assert status_of(live, thorough=False).step == 12


def test_lasting_damage_of_a_live_run_is_reported(live):
    (checkpoint.by_step(live)[0] / "ema.safetensors").write_bytes(b"")
    with (live / "log.jsonl").open("a") as file:
        file.write('{"step": 13, "lo')  # being written
    (live / "samples.jsonl").unlink()
    assert wrong(live) == {
        "checkpoints/step-00000008": ("ema.safetensors is not what was written",),
        "samples.jsonl": ("it is missing",),
    }


def test_files_that_vanish_do_not_count(run, monkeypatch):
    size = status_of(run).size
    building = run / "checkpoints" / ".step-00000016.building"
    building.mkdir()
    (building / "model.safetensors").write_bytes(b"x" * 100_000)
    walk = os.walk

    def walked(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for folder, inside, files in walk(top):
            yield folder, inside, [*files, "gone"]

    monkeypatch.setattr(inspection.os, "walk", walked)
    assert status_of(run).size == size


def state_json(how: Callable[[dict], object]) -> Callable[[str], str]:
    def change(content: str) -> str:
        tree = json.loads(content)
        how(tree)
        return json.dumps(tree)

    return change


HOSTILE: dict[str, Callable[[str], str]] = {
    "null": lambda _: "null",
    "a list": lambda _: "[1]",
    "deep": lambda _: "[" * 100_000,
    "no state": state_json(lambda c: c.pop("state")),
    "no configuration": state_json(lambda c: c.pop("fingerprint")),
    "a configuration that is none": state_json(lambda c: c.update(fingerprint=[1])),
    "a deep configuration": lambda s: s.replace(
        '"fingerprint": {', '"fingerprint": {' + '"a": {' * 400 + "}" * 400 + ","
    ),
    "an unknown field": state_json(lambda c: c["state"].update(x=1)),
    "a missing field": state_json(lambda c: c["state"].pop("pending")),
    "text for a number": state_json(lambda c: c["state"].update(tokens="many")),
    "a list for a step": state_json(lambda c: c["state"].update(step=[12])),
    "a number beyond all": state_json(lambda c: c["state"].update(passed=10**30)),
    "below nothing": state_json(lambda c: c["state"].update(skipped=-1)),
    "a negative variance": state_json(lambda c: c["state"].update(spread=-1.0)),
    "odd losses": state_json(lambda c: c["state"].update(pending=[["a", None]])),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_state_is_damage_and_no_traceback(run, name):
    newest = checkpoint.by_step(run)[-1]
    (newest / "state.json").write_text(HOSTILE[name]((newest / "state.json").read_text()))
    reseal(newest)
    assert wrong(run) == {named(newest): ("state.json cannot be read",)}
    assert (status_of(run).step, status_of(run).steps) == (8, 12)
    said = []
    assert checkpoint.newest(run, said.append) == checkpoint.by_step(run)[0]
    assert "state.json cannot be read; trying the previous checkpoint" in said[0]
    assert checkpoint.last_good(run, said.append) == checkpoint.by_step(run)[0]


def test_odd_settings_and_deep_logs_are_no_traceback(run, capsys):
    for newest in checkpoint.by_step(run):
        change = state_json(lambda c: c["fingerprint"].update(training={"steps": "x"}))
        (newest / "state.json").write_text(change((newest / "state.json").read_text()))
        reseal(newest)
    with (run / "log.jsonl").open("a") as file:
        file.write("[" * 100_000 + '\n{"step": [], "loss": 1}\n')
    assert status_of(run).steps is None
    assert main(["runs", str(run)]) == 0
    assert "log.jsonl" in wrong(run)
    assert read_log(run)[-1]["step"] == 12


def test_a_state_that_is_a_pipe_is_not_waited_for(run):
    newest = checkpoint.by_step(run)[-1]
    (newest / "state.json").unlink()
    os.mkfifo(newest / "state.json")
    assert named(newest) in wrong(run) and status_of(run).step == 8


def test_the_state_of_a_run(run, tmp_path):
    found = status_of(run)
    assert (found.state, found.step, found.steps, found.damaged) == ("stopped", 12, 12, ())
    assert found.nats > 0
    assert found.size > 5000
    (run / "model").mkdir()
    (run / "checkpoints" / "step-00000012" / "state.json").unlink()
    found = status_of(run)
    assert (found.state, found.step) == ("finished", 8)
    assert found.damaged == ("checkpoints/step-00000012", "model")
    assert status_of(run, thorough=False).damaged is None
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.yaml").touch()
    assert status_of(tmp_path / "new").state == "begun"
    with pytest.raises(UnmaskError, match="is no run"):
        inspect(tmp_path)


def test_the_commands_print_state_and_damage(run, capsys):
    assert main(["check", str(run)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "intact   checkpoints/step-00000008"
    assert main(["runs", str(run.parent), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["run"], found["step"], found["damaged"]) == (str(run), 12, [])
    (run / "checkpoints" / "step-00000012" / "ema.safetensors").write_bytes(b"")
    assert main(["check", str(run), "--json"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["checkpoints/step-00000012"] == [
        "ema.safetensors is not what was written"
    ]
    assert said.err.endswith("1 of 7 parts are damaged; training would resume from step 8\n")
    assert main(["runs", str(run)]) == 0
    assert "checkpoints/step-00000012" in capsys.readouterr().out
    assert main(["runs", str(run), "--fast"]) == 0
    assert "not checked" in capsys.readouterr().out
    assert main(["runs", str(run / "tokenizer")]) == 0
    assert "no runs in" in capsys.readouterr().out
    for arguments in (["runs", "nowhere"], ["check", "nowhere"], ["check", str(run.parent)]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["train", "demo", "--resume", str(run / "tokenizer")]) == 2
    assert "has no checkpoint to resume" in capsys.readouterr().err
