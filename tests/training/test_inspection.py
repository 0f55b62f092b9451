"""What a run folder holds, and everything that is wrong with it."""

import json
import random
import shutil
from pathlib import Path

import pytest
from training_stand_in import trainer

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.training import checkpoint, seal
from unmask.training.inspection import inspect, standing

pytestmark = pytest.mark.usefixtures("no_picture")

OPTIONS = {"steps": 12, "save_every": 4, "validate_every": 4, "log_every": 2, "sample_every": 6}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run with everything in it but an exported model."""
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


def test_a_whole_run_has_nothing_wrong(run):
    assert wrong(run) == {}
    assert [part.name for part in inspect(run)] == [
        *("config.yaml, tokenizer", "checkpoints/step-00000008", "checkpoints/step-00000012"),
        *("checkpoints/best", "log.jsonl", "samples.jsonl", "clock.jsonl"),
    ]


def damage(files: list[Path], kind: str, dice: random.Random) -> None:
    """One way for a disk or a person to spoil a file."""
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
def test_every_damage_is_seen_and_the_run_goes_on_or_says_why_not(whole, run, kind):
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
    assert wrong(run) == {"log.jsonl": ("it has a line that is cut short; training drops it",)}


def test_where_a_run_stands(run, tmp_path):
    found = standing(run)
    assert (found.state, found.step, found.steps, found.damaged) == ("stopped", 12, 12, ())
    assert found.nats > 0
    assert found.size > 5000
    (run / "model").mkdir()
    (run / "checkpoints" / "step-00000012" / "state.json").unlink()
    found = standing(run)
    assert (found.state, found.step) == ("finished", 8)
    assert found.damaged == ("checkpoints/step-00000012", "model")
    assert standing(run, thorough=False).damaged is None
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.yaml").touch()
    assert standing(tmp_path / "new").state == "begun"
    with pytest.raises(UnmaskError, match="is no run"):
        inspect(tmp_path)


def test_the_commands_say_it(run, capsys):
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
    assert said.err.endswith("1 of 7 parts are damaged; training would go on from step 8\n")
    assert main(["runs", str(run)]) == 0
    assert "checkpoints/step-00000012" in capsys.readouterr().out
    assert main(["runs", str(run), "--fast"]) == 0
    assert "not looked" in capsys.readouterr().out
    assert main(["runs", str(run / "tokenizer")]) == 0
    assert "no runs in" in capsys.readouterr().out
    for arguments in (["runs", "nowhere"], ["check", "nowhere"], ["check", str(run.parent)]):
        assert main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["train", "demo", "--resume", str(run / "tokenizer")]) == 2
    assert "nothing to resume" in capsys.readouterr().err
