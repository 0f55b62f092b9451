"""Some hostile files for each loader; `benchmarks/reliability/fuzz.py` gives the loaders 12,500."""

import importlib
import signal
from pathlib import Path

import pytest


@pytest.fixture
def fuzz():
    script = importlib.reload(importlib.import_module("benchmarks.reliability.fuzz"))
    before = signal.signal(signal.SIGALRM, script.stop)
    yield script.fuzz
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("loader", "inputs"),
    [
        ("configs", 40),
        ("checkpoints", 60),
        ("runs", 40),
        ("tokenizers", 120),
        ("data", 60),
        ("ratings", 40),
    ],
)
def test_a_loader_loads_or_refuses(fuzz, tmp_path, loader, inputs):
    row = fuzz(loader, inputs, tmp_path)
    assert row["wrong"] == []
    assert row["inputs"] == inputs
    assert row["loaded"] + row["refused"] == inputs and row["refused"] > 0


def test_anything_else_is_a_failure_and_its_input_is_kept(fuzz, tmp_path):
    def load(folder: Path) -> None:
        raise KeyError("x")

    loaders = fuzz.__globals__["LOADERS"]
    loaders["broken"] = lambda _: ([{"a.json": b'{"a": 1}'}], load)
    row = fuzz("broken", 5, tmp_path)
    assert row["failed"] == 5 and row["wrong"] == ["KeyError: 'x'"]
    assert (tmp_path / "broken-1" / "a.json").is_file()
