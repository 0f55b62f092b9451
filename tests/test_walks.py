"""Limits on the number of calls and files from a prompt to its text, and from a row to its loss."""

import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from walk import ROOT, Walk

import unmask
from unmask.cli import main
from unmask.config.run_config import resolve

TEXTS = [f"the {who} sat on the {where}" for who in ("cat", "dog") for where in ("mat", "log")]


def config(folder: Path, **options: str) -> Any:
    (folder / "notes.txt").write_text("\n".join(TEXTS * 8))
    settings = {
        "data.train": str(folder / "notes.txt"),
        "data.separator": "line",
        "data.cache": str(folder / "cache"),
        "data.length": "24",
        "data.packing": "pad",
        "backbone.width": "16",
        "backbone.depth": "1",
        "backbone.heads": "2",
        "training.steps": "2",
        "training.batch": "4",
        "training.validation_rows": "2",
    }
    return resolve({}, list({**settings, **options}.items()))


def test_a_prompt_is_few_calls_and_files_away_from_its_text(model, monkeypatch):
    """The command is traced after the model is loaded and one-time work is done."""
    monkeypatch.setattr("unmask.model.load", lambda path, **options: model)
    monkeypatch.setattr("unmask.cli.commands.generate.check_model", lambda path: None)
    command = ["generate", "x", "--prompt", "the", "--length", "12", "--steps", "4"]
    assert main(command) == 0
    with Walk() as walk:
        assert main(command) == 0
    assert 5 <= len(walk.stack) <= 12, walk.stack
    # cancellation.py, incompatible.py, the forms of files and rotary.py came in; retrieval left
    assert len(walk.files) <= 51, " ".join(sorted(walk.files))


def test_a_row_is_few_calls_and_files_away_from_its_loss(tmp_path):
    train = inspect.unwrap(unmask.train)  # behind the check of the arguments' names
    with Walk(within="TrainStep.add") as walk:
        train(config(tmp_path), tmp_path / "run", say=lambda line: None)
    assert 5 <= len(walk.stack) <= 10, walk.stack
    assert walk.stack[-1] == "runs/train.py:train"
    assert len(walk.files) <= 30, " ".join(sorted(walk.files))


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_a_training_text_is_read_twice_at_most(kind, tmp_path, monkeypatch):
    opened, unhooked = Counter(), Path.open
    settings = config(tmp_path, **{"data.tokenizer.kind": kind, "data.tokenizer.size": "270"})
    hooked = lambda path, *a, **o: opened.update([path.name]) or unhooked(path, *a, **o)  # noqa: E731
    monkeypatch.setattr(Path, "open", hooked)
    unmask.train(settings, tmp_path / "run", say=lambda line: None)
    assert 1 <= opened["notes.txt"] <= 2


def test_a_longer_walk_is_found(model):
    source = "def deeper(more, last):\n    return deeper(more - 1, last) if more else last()"
    exec(compile(source, f"{ROOT}/deeper.py", "exec"), made := {})
    lengths = []
    for more in (0, 7):
        with Walk() as walk:
            made["deeper"](more, lambda: model.generate("the", length=12, steps=1, seed=0))
        assert "deeper.py" in walk.files
        lengths.append(len(walk.stack))
    assert lengths[1] == lengths[0] + 7 > 12
