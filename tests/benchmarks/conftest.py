"""Benchmarks in this process, where torch is imported already."""

import sys

import pytest
import torch
from benchmark_rows import BENCHMARKS

from benchmarks import room


@pytest.fixture
def beside(monkeypatch):
    """Restores the changes of benchmarks to the process afterwards."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def here(beside, monkeypatch, capsys):
    """Runs a script of a room and returns its output."""

    def run(folder: str, name: str, *options: object) -> str:
        monkeypatch.setattr(sys, "argv", [])  # restored afterwards
        room.run(BENCHMARKS / folder, name, [*map(str, options)])
        return capsys.readouterr().out

    return run
