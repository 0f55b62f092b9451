"""Comparison of two runs, to the bit."""

from pathlib import Path

import pytest
import torch

from unmask.files.storage import read_json
from unmask.files.tensors import read_weights
from unmask.training.checkpoints.checkpoint import newest


def log_of(run: Path) -> bytes:
    return (run / "log.jsonl").read_bytes()


def assert_same(run: Path, other: Path, best: bool = True) -> None:
    """Compares weights, averages, optimizer, best, counters, log and samples, to the bit."""
    ours, theirs = (newest(path, pytest.fail) for path in (run, other))
    assert ours.name == theirs.name
    pairs = [(ours, theirs, ("model", "ema", "optimizer"))]
    if best:
        pairs.append((ours.parent / "best", theirs.parent / "best", ("model",)))
    for folder, twin, names in pairs:
        for name in names:
            a, b = read_weights(folder, name), read_weights(twin, name)
            assert a.keys() == b.keys()
            assert all(torch.equal(a[key], b[key]) for key in a), name
    a, b = (read_json(folder / "state.json")["state"] for folder in (ours, theirs))
    assert a | {"seconds": 0} == b | {"seconds": 0}
    assert log_of(run) == log_of(other)
    samples = "samples.jsonl"
    if (run / samples).exists():
        assert (run / samples).read_bytes() == (other / samples).read_bytes()
