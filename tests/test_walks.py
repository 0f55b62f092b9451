"""Two walks through the code: from a prompt to its text, and from a row to its loss, short ones."""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import unmask
from unmask.cli import main
from unmask.config.run_config import resolve

ROOT = str(Path(unmask.__file__).parent)
TEXTS = [f"the {who} sat on the {where}" for who in ("cat", "dog") for where in ("mat", "log")]


def project(frame: FrameType) -> str | None:
    """The file of a frame within the package, or None."""
    file = frame.f_code.co_filename
    return file.removeprefix(ROOT)[1:] if file.startswith(ROOT) else None


class Walk:
    """The files that run, and the frames on the stack when the network is called.

    With `within`, a function's name, only what that function calls counts.
    """

    def __init__(self, within: str = "") -> None:
        self.within, self.files, self.stack = within, set[str](), list[str]()
        self._inside = not within

    def __enter__(self) -> "Walk":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        file = project(frame)
        if file is None:
            return
        if frame.f_code.co_qualname == self.within and event in ("call", "return"):
            self._inside = event == "call"
        if event == "call" and self._inside:
            self.files.add(file)
            if frame.f_code.co_name == "features" and not self.stack:
                self.stack = list(frames(frame))


def frames(frame: FrameType | None) -> list[str]:
    """The frames of the package below a frame, the innermost first."""
    found = []
    while frame is not None:
        if file := project(frame):
            found.append(f"{file}:{frame.f_code.co_name}")
        frame = frame.f_back
    return found


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
    """The command, with the model read before."""
    monkeypatch.setattr("unmask.model.load", lambda path, **options: model)
    with Walk() as walk:
        assert main(["generate", "x", "--prompt", "the", "--length", "12", "--steps", "4"]) == 0
    assert 5 <= len(walk.stack) <= 12, walk.stack
    assert len(walk.files) <= 45, sorted(walk.files)


def test_a_row_is_few_calls_and_files_away_from_its_loss(tmp_path):
    with Walk(within="Gradient.add") as walk:
        unmask.train(config(tmp_path), tmp_path / "run", say=lambda line: None)
    assert 5 <= len(walk.stack) <= 10, walk.stack
    assert walk.stack[-1] == "runs/train.py:train"
    assert len(walk.files) <= 30, sorted(walk.files)


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_a_training_text_is_read_twice_at_most(kind, tmp_path, monkeypatch):
    opened, unhooked = Counter(), Path.open
    settings = config(tmp_path, **{"data.tokenizer.kind": kind, "data.tokenizer.size": "270"})
    hooked = lambda path, *a, **o: opened.update([path.name]) or unhooked(path, *a, **o)  # noqa: E731
    monkeypatch.setattr(Path, "open", hooked)
    unmask.train(settings, tmp_path / "run", say=lambda line: None)
    assert 1 <= opened["notes.txt"] <= 2


def test_a_longer_walk_is_seen(model):
    source = "def deeper(more, last):\n    return deeper(more - 1, last) if more else last()"
    exec(compile(source, f"{ROOT}/deeper.py", "exec"), made := {})
    lengths = []
    for more in (0, 7):
        with Walk() as walk:
            made["deeper"](more, lambda: model.generate("the", length=12, steps=1, seed=0))
        assert "deeper.py" in walk.files
        lengths.append(len(walk.stack))
    assert lengths[1] == lengths[0] + 7 > 12
